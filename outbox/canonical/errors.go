package canonical

import (
	"fmt"
	"strconv"
	"strings"
)

// Code names the rule that an input breaks. The database uses the same words.
type Code string

// The rules of admission; the package comment says what each one covers.
const (
	TooLarge        Code = "too_large"
	InvalidJSON     Code = "invalid_json"
	NotAnObject     Code = "not_an_object"
	TooDeep         Code = "too_deep"
	DuplicateMember Code = "duplicate_member"
	InvalidUTF8     Code = "invalid_utf8"
	LoneSurrogate   Code = "lone_surrogate"
	NulCharacter    Code = "nul_character"
	NumberNotExact  Code = "number_not_exact"
)

var hints = map[Code]string{
	TooLarge:        "send a reference to the data instead of the data",
	InvalidJSON:     "send one JSON value as RFC 8259 defines it",
	NotAnObject:     "send an object, and other values as a member of it",
	TooDeep:         "nest objects and arrays at most " + strconv.Itoa(MaxDepth) + " deep",
	DuplicateMember: "give each name once; readers disagree about which value counts",
	InvalidUTF8:     "encode the text as UTF-8, and binary data as base64",
	LoneSurrogate:   `write a character beyond U+FFFF as itself or as a pair such as "\ud83d\ude02"`,
	NulCharacter:    "remove U+0000; encode binary data as base64",
	NumberNotExact:  "send amounts as integers of minor units, and longer numbers as strings",
}

// Error says why an input was refused. The input will be refused again: correct it,
// do not retry it.
type Error struct {
	// Code is the rule that is broken.
	Code Code
	// Path is the place, as a JSON Pointer (RFC 6901). It is empty for the whole text,
	// and holds member names of the payload, never values.
	Path string
	// Hint tells the sender what to do instead.
	Hint string
}

// Error returns code, path and hint on one line.
func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("canonical: %s: %s", e.Code, e.Hint)
	}
	return fmt.Sprintf("canonical: %s at %s: %s", e.Code, e.Path, e.Hint)
}

func refuse(code Code) *Error {
	return &Error{Code: code, Hint: hints[code]}
}

func tooLarge(size, limit int) *Error {
	e := refuse(TooLarge)
	e.Hint = fmt.Sprintf("%d bytes are over the limit of %d; %s", size, limit, e.Hint)
	return e
}

func invalidJSON(offset int) *Error {
	e := refuse(InvalidJSON)
	e.Hint = fmt.Sprintf("not JSON from byte %d on; %s", offset, e.Hint)
	return e
}

// within places the error below a member or an element of the value that holds it.
func (e *Error) within(step string) *Error {
	e.Path = "/" + step + e.Path
	return e
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointerStep escapes a member name for a JSON Pointer.
func pointerStep(name []byte) string {
	return pointerEscapes.Replace(string(name))
}
