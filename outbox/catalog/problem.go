package catalog

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a catalog.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1; 0 when unknown
	Path    string `json:"path"`           // JSON Pointer into the file
	Problem string `json:"problem"`
	Hint    string `json:"hint,omitempty"` // what to do about it
}

// String is the problem on one line: file:line: path: problem (hint).
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Problem)
	if p.Hint != "" {
		fmt.Fprintf(&b, " (%s)", p.Hint)
	}
	return b.String()
}

// Error lists what is wrong with a catalog, in the order of the file.
type Error struct{ Problems []Problem }

// Error has a problem on each line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// fault is a problem inside a part of the file that does not know where it stands.
type fault struct{ path, problem, hint string }

// source knows the lines of a file.
type source struct {
	file  string
	lines map[string]int // by JSON Pointer
}

func (s source) problem(path, problem, hint string) Problem {
	return Problem{File: s.file, Line: s.line(path), Path: path, Problem: problem, Hint: hint}
}

// line is that of the path, or of what encloses it.
func (s source) line(path string) int {
	for {
		if line, ok := s.lines[path]; ok {
			return line
		}
		cut := strings.LastIndexByte(path, '/')
		if cut < 0 {
			return 0
		}
		path = path[:cut]
	}
}
