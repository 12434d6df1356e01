package catalog

import (
	"fmt"
	"strconv"
	"strings"
)

var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

// step is a member name or an index as a part of a JSON Pointer.
func step[T string | int](name T) string {
	switch name := any(name).(type) {
	case int:
		return "/" + strconv.Itoa(name)
	default:
		return "/" + pointerEscapes.Replace(name.(string))
	}
}

func pointer(names []string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString(step(name))
	}
	return b.String()
}

// parsePointer splits a JSON Pointer (RFC 6901) into member names.
func parsePointer(text string) ([]string, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf("%s is not a JSON Pointer", strconv.Quote(text))
	}
	parts := strings.Split(text[1:], "/")
	for i, part := range parts {
		bare := strings.ReplaceAll(strings.ReplaceAll(part, "~0", ""), "~1", "")
		if strings.Contains(bare, "~") {
			return nil, fmt.Errorf("%s is not a JSON Pointer: a ~ must be written ~0", strconv.Quote(text))
		}
		parts[i] = pointerUnescapes.Replace(part)
	}
	return parts, nil
}
