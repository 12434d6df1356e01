// Package canonical gives a payload one spelling, so that one intent has one digest.
//
// Two spellings of the same JSON value, {"a":1,"b":2.0} and {"b":2, "a":1}, become
// the same bytes (RFC 8785); two different values never do. [Transform] is RFC 8785
// alone. [Admit] adds the rules that keep the second half of that promise: RFC 8785
// rounds 9007199254740993 to 9007199254740992, and a penny lost there would make a
// second payment look like a repeat of the first.
//
// The package holds no state and imports nothing of this module. Its twin is
// migrations/sql/00002_canonical.sql, for callers that enqueue in plain SQL: the
// database answers with the same bytes, or with the same code and path. A change to
// one is a change to both, and a change to any byte of the output is a new [Version].
//
// # What is refused, and where
//
// An [*Error] names the rule and the place. When an input breaks several rules, the
// whole text is checked for its size first and for its grammar second; then the first
// fault in document order is the one reported:
//
//   - too_large: the text is longer than the limit, in bytes, as sent.
//   - invalid_json: the text is not one JSON value (RFC 8259).
//   - not_an_object: the value is not an object.
//   - too_deep: an object or array inside [MaxDepth] others.
//   - duplicate_member: a name for the second time in one object, however escaped.
//   - invalid_utf8, lone_surrogate, nul_character: a string or a name with bytes that
//     are no UTF-8, half of a surrogate pair, or U+0000.
//   - number_not_exact: an integer beyond ±(2^53-1); a fraction of more than 15
//     significant digits or closer to zero than the smallest normal double. The value
//     counts, not the spelling: 2, 2.0 and 20e-1 are one integer.
//
// The path of a fault is that of the value at fault. A name that is itself at fault
// cannot be written in a path, so its fault is placed at the object that holds it; the
// path of a repeated name is that of the member.
package canonical
