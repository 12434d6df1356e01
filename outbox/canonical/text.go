package canonical

import (
	"encoding/binary"
	"encoding/hex"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape appends to dst the text that a string literal without its quotes stands
// for. The literal must have passed checkGrammar. fault is that of the first character
// which is none, or is U+0000 while noNul is set; dst then ends before it.
func unescape(dst, body []byte, noNul bool) (decoded []byte, fault Code) {
	for len(body) > 0 {
		r, size, fault := nextRune(body)
		if fault == "" && r == 0 && noNul {
			fault = NulCharacter
		}
		if fault != "" {
			return dst, fault
		}
		dst = utf8.AppendRune(dst, r)
		body = body[size:]
	}
	return dst, ""
}

// nextRune decodes the first character of a literal, which takes size bytes in it.
func nextRune(body []byte) (r rune, size int, fault Code) {
	if body[0] != '\\' {
		r, size = utf8.DecodeRune(body)
		if r == utf8.RuneError && size == 1 {
			return 0, 0, InvalidUTF8
		}
		return r, size, ""
	}
	if body[1] != 'u' {
		return simpleEscape(body[1]), len(`\n`), ""
	}
	r = hexRune(body)
	if !utf16.IsSurrogate(r) {
		return r, len(`\u0000`), ""
	}
	if len(body) < len(`\u0000\u0000`) || body[6] != '\\' || body[7] != 'u' {
		return 0, 0, LoneSurrogate
	}
	r = utf16.DecodeRune(r, hexRune(body[6:]))
	if r == utf8.RuneError {
		return 0, 0, LoneSurrogate
	}
	return r, len(`\u0000\u0000`), ""
}

func simpleEscape(c byte) rune {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default: // '"', '\\' and '/' stand for themselves
		return rune(c)
	}
}

// hexRune returns the number in an escape like \u20ac.
func hexRune(escape []byte) rune {
	var unit [2]byte
	_, _ = hex.Decode(unit[:], escape[2:6]) // checkGrammar has seen four hex digits
	return rune(binary.BigEndian.Uint16(unit[:]))
}
