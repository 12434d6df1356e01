package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// statements are SQL texts by the name on their first line.
type statements map[string]string

// dispatchStatements reads the SQL constants of package dispatch from its source.
func dispatchStatements() (statements, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return nil, fmt.Errorf("find the source of this program")
	}
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(here), "..", "..", "dispatch", "*.go"))
	if err != nil {
		return nil, err
	}
	all := statements{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					all.add(text)
				}
			}
			return true
		})
	}
	return all, nil
}

// add keeps the text if its first line names it.
func (s statements) add(text string) {
	rest, ok := strings.CutPrefix(text, "-- name: ")
	if !ok {
		return
	}
	name, _, _ := strings.Cut(rest, "\n")
	s[strings.TrimSpace(name)] = strings.TrimRight(strings.TrimSpace(text), ";")
}

// sections splits a file of statements, each under its name.
func sections(file string) statements {
	all := statements{}
	for _, part := range strings.Split(file, "-- name: ")[1:] {
		all.add("-- name: " + part)
	}
	return all
}

// get returns the named statement; a program without it is wrong.
func (s statements) get(name string) string {
	text, ok := s[name]
	if !ok {
		panic("no statement named " + name + "; was it renamed in package dispatch?")
	}
	return text
}
