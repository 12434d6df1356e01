package smtp

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxName    = 200
	maxSubject = 900
)

// address is local@domain as it goes into commands and headers.
type address struct{ local, domain string }

func (a address) String() string { return a.local + "@" + a.domain }

// ascii tells whether every mail server understands the address. Domains are not converted
// to punycode: what conversion a receiver's registry wants is not ours to guess.
func (a address) ascii() bool { return isASCII(a.String()) }

// parseAddress accepts one bare address. Quoted local parts, comments and address literals
// are refused: nobody's customer has them, and they are how headers are smuggled.
func parseAddress(s string) (address, error) {
	i := strings.LastIndexByte(s, '@')
	if i < 1 || i == len(s)-1 {
		return address{}, errors.New("is not an address such as anna@example.com")
	}
	a := address{s[:i], s[i+1:]}
	switch {
	case !utf8.ValidString(s):
		return address{}, errors.New("is not valid UTF-8")
	case len(a.local) > 64 || len(s) > 254:
		return address{}, errors.New("is too long: 64 bytes before the @, 254 in all")
	case strings.HasPrefix(a.local, ".") || strings.HasSuffix(a.local, ".") || strings.Contains(a.local, ".."):
		return address{}, errors.New("has a misplaced dot before the @")
	case strings.ContainsFunc(a.local, func(r rune) bool { return !localRune(r) }):
		return address{}, errors.New("has a character before the @ that only a quoted address may have; give one bare address")
	}
	for label := range strings.SplitSeq(a.domain, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, func(r rune) bool { return !labelRune(r) }) {
			return address{}, errors.New("has no valid domain after the @")
		}
	}
	return a, nil
}

// localRune is RFC 5322's atext, the dot, and RFC 6531's everything else that is visible.
func localRune(r rune) bool {
	if r < utf8.RuneSelf {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("!#$%&'*+-/=?^_`{|}~.", r)
	}
	return unicode.IsGraphic(r) && !unicode.IsSpace(r)
}

func labelRune(r rune) bool {
	return r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// checkLine says why s cannot be one line of a header, or "".
func checkLine(s string, limit int) string {
	switch {
	case len(s) > limit:
		return "is too long for a header"
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }):
		return "has a line end or another control character, which a header cannot carry"
	}
	return ""
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// headerText is s as unstructured header text. Text that a reader would take for an
// encoded word, or trim, is encoded too, so that it arrives as it was given.
func headerText(s string) string {
	if isASCII(s) && !strings.Contains(s, "=?") && strings.TrimSpace(s) == s {
		return s
	}
	return encodedWords(s)
}

// mailbox is an address with a display name, if there is one.
func mailbox(name string, a address) string {
	switch {
	case name == "":
		return "<" + a.String() + ">"
	case isASCII(name) && !strings.Contains(name, "=?") && !strings.ContainsAny(name, `"\`) && strings.TrimSpace(name) == name:
		return `"` + name + `" <` + a.String() + ">"
	}
	return encodedWords(name) + " <" + a.String() + ">"
}

// encodedWords is RFC 2047's base64 form, folded, no rune split between two words.
func encodedWords(s string) string {
	const perWord = 42 // bytes: 68 characters with the frame, of 75
	var words []string
	var word []byte
	flush := func() {
		if len(word) > 0 {
			words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString(word)+"?=")
			word = word[:0]
		}
	}
	for _, r := range s {
		if len(word)+utf8.RuneLen(r) > perWord {
			flush()
		}
		word = utf8.AppendRune(word, r)
	}
	flush()
	return strings.Join(words, "\r\n ")
}
