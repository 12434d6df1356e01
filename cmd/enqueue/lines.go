package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
)

// line is one line of a file, without its end.
type line struct {
	number  int // from 1
	text    []byte
	size    int  // bytes in the file, its end included
	tooLong bool // then text is cut off
}

// readLines sends every line until the end, an error, or ctx. The channel closes then,
// and failed returns the error.
func readLines(ctx context.Context, from io.Reader) (lines <-chan line, failed func() error) {
	out := make(chan line, 64)
	var err error
	go func() {
		defer close(out)
		r := bufio.NewReaderSize(from, 64<<10)
		for n := 1; ; n++ {
			var l line
			l, err = readLine(r)
			if l.size == 0 {
				return
			}
			l.number = n
			if n == 1 {
				l.text = bytes.TrimPrefix(l.text, []byte("\ufeff"))
			}
			select {
			case out <- l:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, func() error {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

// readLine reads up to the next newline, and keeps no more than a payload may have.
func readLine(r *bufio.Reader) (l line, err error) {
	for {
		var part []byte
		part, err = r.ReadSlice('\n')
		l.size += len(part)
		if len(l.text)+len(part) <= maxText {
			l.text = append(l.text, part...)
		} else {
			l.tooLong = true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			l.text = bytes.TrimSpace(l.text)
			return l, err
		}
	}
}
