package cli

import (
	"encoding"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parseInto sets a field from a value of a file (typed by YAML) or from a text.
func parseInto(field reflect.Value, value any, oneOf []string) error {
	text, isText := value.(string)
	if !isText {
		text = fmt.Sprint(value)
	}
	switch p := field.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("%q: give a duration with its unit, such as 30s or 5m", text)
		}
		*p = d
	case *slog.Level:
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%q: give debug, info, warn or error", text)
		}
	case encoding.TextUnmarshaler:
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
	case *string:
		if !isText {
			return fmt.Errorf("%v: give a text, in quotes", value)
		}
		if len(oneOf) > 0 && !slices.Contains(oneOf, text) {
			return fmt.Errorf("%q: give one of %s", text, strings.Join(oneOf, ", "))
		}
		*p = text
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q: give true or false", text)
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return fmt.Errorf("%q: give a whole number, 0 or more", text)
		}
		*p = n
	case *float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= 0) {
			return fmt.Errorf("%q: give a number, 0 or more", text)
		}
		*p = f
	case *[]string:
		return parseList(p, value)
	default:
		return fmt.Errorf("cannot be configured: %s", field.Type())
	}
	return nil
}

// parseList takes a YAML list, or a text with commas.
func parseList(into *[]string, value any) error {
	switch v := value.(type) {
	case string:
		*into = strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })
	case []any:
		*into = nil
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return fmt.Errorf("%v: give a list of texts", item)
			}
			*into = append(*into, text)
		}
	default:
		return fmt.Errorf("%v: give a list", value)
	}
	return nil
}

// formatValue writes a default as one would in a file.
func formatValue(v any) string {
	switch v := v.(type) {
	case slog.Level:
		return strings.ToLower(v.String())
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return shortDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

// shortDuration writes 5m instead of 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// kindOf names what a flag takes.
func kindOf(v any) string {
	switch v.(type) {
	case time.Duration:
		return "duration"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "number"
	case []string:
		return "list"
	default:
		return "string"
	}
}
