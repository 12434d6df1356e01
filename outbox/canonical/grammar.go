package canonical

// checkGrammar returns nil if src is one JSON value with nothing but white space
// around it. It does not recurse, so no nesting is too deep for it, and it does not
// look at what strings and numbers mean: a string may be no UTF-8, a number may be
// beyond any double.
//
// The standard checkers are no use here: they give up at 10,000 levels, and a text
// that is both deep and broken must be called invalid_json, as the database calls it.
func checkGrammar(src []byte) error {
	s := scanner{src: src}
	for s.descend() {
		more, ok := s.ascend()
		if !ok {
			break
		}
		if !more {
			return nil
		}
	}
	return invalidJSON(s.pos)
}

// isObject reports whether a valid text is an object.
func isObject(src []byte) bool {
	s := scanner{src: src}
	s.space()
	return s.peek() == '{'
}

// scanner reads a text from left to right. Its methods report whether they found what
// they look for; pos is then behind it, and otherwise near the byte that is in the way.
type scanner struct {
	src  []byte
	pos  int
	open []byte // the brackets around pos, outermost first
}

// descend reads opening brackets and names up to the end of the first value that is
// complete: a scalar, or a pair of brackets with nothing inside.
func (s *scanner) descend() bool {
	for {
		s.space()
		bracket := s.peek()
		if bracket != '{' && bracket != '[' {
			return s.scalar()
		}
		s.pos++
		s.space()
		if s.take(closing(bracket)) {
			return true
		}
		s.open = append(s.open, bracket)
		if bracket == '{' && !s.name() {
			return false
		}
	}
}

// ascend reads what follows a complete value: closing brackets, and then a comma with,
// in an object, the next name (more values follow), or the end of the text.
func (s *scanner) ascend() (more, ok bool) {
	for {
		s.space()
		if len(s.open) == 0 {
			return false, s.pos == len(s.src)
		}
		bracket := s.open[len(s.open)-1]
		if s.take(',') {
			return true, bracket == '[' || s.name()
		}
		if !s.take(closing(bracket)) {
			return false, false
		}
		s.open = s.open[:len(s.open)-1]
	}
}

func (s *scanner) name() bool {
	s.space()
	if !s.text() {
		return false
	}
	s.space()
	return s.take(':')
}

func (s *scanner) scalar() bool {
	switch s.peek() {
	case '"':
		return s.text()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

// text reads a string: no control characters, and no escape but those of RFC 8259.
func (s *scanner) text() bool {
	if !s.take('"') {
		return false
	}
	for ; s.pos < len(s.src); s.pos++ {
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			return true
		case c < ' ':
			return false
		case c == '\\':
			if s.pos++; !s.escape() {
				return false
			}
		}
	}
	return false
}

// escape reads all but the last byte of what follows a backslash.
func (s *scanner) escape() bool {
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if s.pos++; !isHex(s.peek()) {
				return false
			}
		}
		return true
	}
	return false
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *scanner) number() bool {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if !s.take('e') && !s.take('E') {
		return true
	}
	if !s.take('+') {
		s.take('-')
	}
	return s.digits()
}

func (s *scanner) digits() bool {
	from := s.pos
	for isDigit(s.peek()) {
		s.pos++
	}
	return s.pos > from
}

func (s *scanner) word(word string) bool {
	for i := range len(word) {
		if !s.take(word[i]) {
			return false
		}
	}
	return true
}

func (s *scanner) space() {
	for s.pos < len(s.src) && isSpace(s.src[s.pos]) {
		s.pos++
	}
}

func (s *scanner) take(c byte) bool {
	if s.pos < len(s.src) && s.src[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// peek returns the byte at pos, or 0 at the end: no token of JSON begins with it.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

func closing(bracket byte) byte {
	if bracket == '{' {
		return '}'
	}
	return ']'
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
}
