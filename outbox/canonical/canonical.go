package canonical

import "crypto/sha256"

// Version identifies the digest: SHA-256 over the bytes of RFC 8785. It is stored
// beside every digest, so that a later way to spell or to hash does not turn old
// intents into conflicts.
const Version = 1

// DefaultMaxBytes is the limit that Admit uses when it is given none: 64 KiB.
const DefaultMaxBytes = 64 << 10

// MaxDepth is how many objects and arrays Admit lets enclose one another. The
// outermost one counts.
const MaxDepth = 64

// transformDepth keeps Transform from exhausting its stack.
const transformDepth = 10_000

// Transform appends the canonical form of src, by RFC 8785, to dst. Any JSON value is
// taken, and numbers are rounded to doubles as the RFC has it: use [Admit] for what
// will be digested.
//
// The error is an [*Error] for text that RFC 8785 cannot express: invalid_json,
// duplicate_member, invalid_utf8, lone_surrogate, number_not_exact (only for a number
// beyond the largest double), too_deep (beyond 10,000). dst is then returned as it was.
func Transform(dst, src []byte) ([]byte, error) {
	if err := checkGrammar(src); err != nil {
		return dst, err
	}
	return write(dst, src, rules{depth: transformDepth})
}

// Admit checks that src may be a payload and returns its canonical bytes. maxBytes
// bounds the length of src; zero or less means [DefaultMaxBytes].
//
// The error is an [*Error] with any of the codes of this package. Everything admitted
// keeps its value: distinct payloads have distinct canonical bytes, and admitting the
// result again returns it unchanged.
func Admit(src []byte, maxBytes int) ([]byte, error) {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxBytes
	}
	if len(src) > maxBytes {
		return nil, tooLarge(len(src), maxBytes)
	}
	if err := checkGrammar(src); err != nil {
		return nil, err
	}
	if !isObject(src) {
		return nil, refuse(NotAnObject)
	}
	return write(make([]byte, 0, len(src)), src, rules{depth: MaxDepth, admission: true})
}

// Digest returns the digest of canonical bytes, in the way of [Version]. It does not
// check that they are canonical.
func Digest(canonicalBytes []byte) [32]byte {
	return sha256.Sum256(canonicalBytes)
}
