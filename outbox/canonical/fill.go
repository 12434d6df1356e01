package canonical

// Fill returns doc with the members of defaults that it lacks. Where both have an
// object, the same happens inside; where doc has anything else, null and arrays
// included, doc stands. Neither input is changed.
//
// Both should be canonical objects, as Admit returns them; the result is canonical
// then, and only its size and depth are no longer checked. Other spellings are made
// canonical first. The error is an [*Error]: not_an_object, or one of Transform.
func Fill(doc, defaults []byte) ([]byte, error) {
	doc, err := transformObject(doc)
	if err != nil {
		return nil, err
	}
	defaults, err = transformObject(defaults)
	if err != nil {
		return nil, err
	}
	return appendFilled(make([]byte, 0, len(doc)+len(defaults)), doc, defaults), nil
}

func transformObject(src []byte) ([]byte, error) {
	out, err := Transform(make([]byte, 0, len(src)), src)
	if err == nil && !isObject(out) {
		err = refuse(NotAnObject)
	}
	return out, err
}

// appendFilled merges the members of two canonical objects, which are both in order.
func appendFilled(dst, doc, defaults []byte) []byte {
	own, spare := readMembers(doc), readMembers(defaults)
	dst = append(dst, '{')
	for i := 0; own.more() || spare.more(); i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendNext(dst, &own, &spare)
	}
	return append(dst, '}')
}

// appendNext appends the member that comes next in either object, and steps over it in
// both.
func appendNext(dst []byte, own, spare *memberReader) []byte {
	switch order := compareMembers(own, spare); {
	case order < 0:
		dst = append(dst, own.member...)
		own.next()
	case order > 0:
		dst = append(dst, spare.member...)
		spare.next()
	default:
		dst = append(dst, own.member[:len(own.member)-len(own.value)]...)
		if own.value[0] == '{' && spare.value[0] == '{' {
			dst = appendFilled(dst, own.value, spare.value)
		} else {
			dst = append(dst, own.value...)
		}
		own.next()
		spare.next()
	}
	return dst
}

// compareMembers says which of two readers has the member that comes first; one that
// is at its end has none.
func compareMembers(a, b *memberReader) int {
	switch {
	case !b.more():
		return -1
	case !a.more():
		return 1
	default:
		return compareUTF16(a.name, b.name)
	}
}

// memberReader steps through a canonical object.
type memberReader struct {
	scanner scanner
	name    []byte // decoded
	member  []byte // "name":value as in the text, or nil at the end
	value   []byte
}

// readMembers returns a reader at the first member.
func readMembers(object []byte) memberReader {
	r := memberReader{scanner: scanner{src: object}}
	r.next()
	return r
}

func (r *memberReader) more() bool { return r.member != nil }

func (r *memberReader) next() {
	s := &r.scanner
	s.pos++ // the opening bracket or a comma
	start := s.pos
	if !s.text() {
		r.member = nil
		return
	}
	r.name, _ = unescape(r.name[:0], s.src[start+1:s.pos-1], false)
	s.pos++
	value := s.pos
	s.skipValue()
	r.member, r.value = s.src[start:s.pos], s.src[value:s.pos]
}

// skipValue steps over one value in a canonical text.
func (s *scanner) skipValue() {
	for depth := 0; ; {
		switch s.peek() {
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case ',', ':':
			s.pos++
		default:
			s.scalar()
		}
		if depth == 0 {
			return
		}
	}
}
