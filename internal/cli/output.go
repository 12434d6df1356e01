package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rivo/uniseg"
)

// Output formats.
const (
	OutputText = "text"
	OutputJSON = "json"
)

// Output writes results: tables for people, JSON for programs.
type Output struct {
	JSON bool
	w    io.Writer
}

// Encode writes v as one line of JSON. Commands that list write one line per item.
func (o Output) Encode(v any) error {
	e := json.NewEncoder(o.w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Printf writes a line of text, made printable.
func (o Output) Printf(format string, args ...any) error {
	_, err := io.WriteString(o.w, Printable(fmt.Sprintf(format, args...))+"\n")
	return err
}

// Table aligns the columns by the width that a terminal gives them. The first row is
// the heading.
func (o Output) Table(rows [][]string) error {
	widths := []int{}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = Printable(cell)
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], uniseg.StringWidth(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(o.w, b.String())
	return err
}

// Fields is a table of names and values; a value that is empty is left out.
func (o Output) Fields(pairs ...string) error {
	var rows [][]string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			rows = append(rows, pairs[i:i+2])
		}
	}
	return o.Table(rows)
}

// Time is RFC 3339 in UTC with milliseconds, or "" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Printable escapes what would move the cursor, colour or reorder a terminal's text:
// names come from callers.
func Printable(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// hidden leaves the joiner that emoji are made of.
func hidden(r rune) bool { return !unicode.IsPrint(r) && r != '\u200d' }
