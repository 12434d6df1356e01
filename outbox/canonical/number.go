package canonical

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// appendNumber appends the canonical form of a number literal to dst: that of the
// nearest double, as ECMAScript writes it. ok is false if there is none, or, when exact
// is set, if the literal breaks the rule of number_not_exact.
func appendNumber(dst, literal []byte, exact bool) (appended []byte, ok bool) {
	if isShortInteger(literal) {
		return append(dst, literal...), true
	}
	if exact && !parseDecimal(literal).isExact() {
		return dst, false
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		return dst, false
	}
	if f == 0 {
		f = 0 // -0 is 0
	}
	return jsontext.AppendFloat(dst, f, 64), true
}

// isShortInteger reports whether a literal is exact and canonical as it stands. Most
// are. A minus sign is left to the longer way, because of -0.
func isShortInteger(literal []byte) bool {
	if len(literal) > exactDigits {
		return false
	}
	for _, c := range literal {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// decimal is the value of a number literal: 0.DIGITS × 10^point, where DIGITS neither
// begin nor end with 0. Zero has no digits.
type decimal struct {
	digits      int // how many
	significand uint64
	point       int
}

const (
	// exactDigits is how many significant digits survive the way into a double and
	// back, whatever they are (DBL_DIG in C).
	exactDigits = 15

	// maxInteger is 2^53-1: beyond it, neighbouring integers share a double.
	maxInteger       = 1<<53 - 1
	maxIntegerDigits = 16

	// The smallest normal double, 2.2250738585072014e-308. Below it, doubles get
	// coarser until 15 digits no longer survive.
	minNormalSignificand = 22250738585072014
	minNormalDigits      = 17
	minNormalPoint       = -307

	// A uint64 holds this many digits. Numbers with more are refused before the
	// significand is looked at.
	significandDigits = 19
)

// isExact reports whether d is a number that Admit takes. Distinct decimals that are
// exact have distinct canonical forms.
func (d decimal) isExact() bool {
	if d.digits == 0 {
		return true
	}
	if d.point >= d.digits { // an integer
		return d.point < maxIntegerDigits ||
			d.point == maxIntegerDigits && d.scaled(maxIntegerDigits) <= maxInteger
	}
	// A fraction of 15 digits is below 10^14, and so below 2^53.
	return d.digits <= exactDigits && (d.point > minNormalPoint ||
		d.point == minNormalPoint && d.scaled(minNormalDigits) >= minNormalSignificand)
}

// scaled returns DIGITS padded with zeros to the given length.
func (d decimal) scaled(length int) uint64 {
	n := d.significand
	for range length - d.digits {
		n *= 10
	}
	return n
}

// parseDecimal reads a literal that has passed checkGrammar. Any exponent and any
// number of digits will do; of more than 19 digits the significand is not right.
func parseDecimal(literal []byte) decimal {
	var d decimal
	fraction := false
	read := 0 // digits, from the first that is not 0 on
	for i, c := range literal {
		switch {
		case c == '-':
		case c == '.':
			fraction = true
		case !isDigit(c): // e or E
			d.point += parseExponent(literal[i+1:])
			return d
		case c == '0' && read == 0:
			if fraction {
				d.point--
			}
		default:
			read++
			if !fraction {
				d.point++
			}
			if c != '0' {
				d.append(c, read)
			}
		}
	}
	return d
}

// append adds a digit at the given position, and zeros up to it.
func (d *decimal) append(digit byte, position int) {
	if position <= significandDigits {
		d.significand = d.scaled(position) + uint64(digit-'0')
	}
	d.digits = position
}

// parseExponent reads [+-]?[0-9]+. Beyond a billion the exact value does not matter:
// it is more than any text has digits to make up for.
func parseExponent(text []byte) int {
	const limit = 1_000_000_000
	e, negative := 0, false
	for _, c := range text {
		if !isDigit(c) {
			negative = c == '-'
			continue
		}
		e = min(e*10+int(c-'0'), limit)
	}
	if negative {
		return -e
	}
	return e
}

func isNumeric(c byte) bool {
	return isDigit(c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}
