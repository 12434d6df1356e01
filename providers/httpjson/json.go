package httpjson

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxResult = 64 << 10 // of a body to keep
	maxID     = 255
	maxCode   = 100
)

// decode reads one JSON value, numbers untouched. A body in which a value is missing or
// cut is not JSON.
func decode(data []byte) (any, bool) {
	if !json.Valid(data) || !utf8.Valid(data) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	return v, dec.Decode(&v) == nil
}

// keep is what of a body goes into the ledger: small JSON that any database stores.
func keep(body []byte) json.RawMessage {
	if len(body) > maxResult || !json.Valid(body) || !utf8.Valid(body) || bytes.Contains(body, []byte(`\u0000`)) {
		return nil
	}
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return nil
	}
	return compact.Bytes()
}

// keepValue is keep for a part of a body.
func keepValue(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return keep(data)
}

// at finds a top-level member by name, or anything by JSON Pointer.
func at(v any, field string) any {
	if !strings.HasPrefix(field, "/") {
		m, _ := v.(map[string]any)
		return m[field]
	}
	for token := range strings.SplitSeq(field[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch container := v.(type) {
		case map[string]any:
			v = container[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(container) {
				return nil
			}
			v = container[i]
		default:
			return nil
		}
	}
	return v
}

func validPointer(field string) bool {
	return fieldName.MatchString(field) || strings.HasPrefix(field, "/") && len(field) > 1
}

// identifier is a string or an integer that can be stored as a provider's id.
func identifier(v any) string {
	var id string
	switch x := v.(type) {
	case string:
		id = x
	case json.Number:
		if strings.ContainsAny(x.String(), ".eE") {
			return ""
		}
		id = x.String()
	}
	if len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return ""
	}
	return id
}

// scalar is the text of a raw JSON string or integer.
func scalar(raw json.RawMessage) (string, bool) {
	v, ok := decode(raw)
	if !ok {
		return "", false
	}
	id := identifier(v)
	return id, id != ""
}

// sameValue compares JSON values by meaning: 240, 240.00 and "240.00" are one amount, EUR
// and eur one currency.
func sameValue(a, b any) bool {
	x, okX := text(a)
	y, okY := text(b)
	if !okX || !okY {
		aj, _ := json.Marshal(a)
		bj, _ := json.Marshal(b)
		return bytes.Equal(aj, bj)
	}
	if x == y || len(x) == 3 && strings.EqualFold(x, y) {
		return true
	}
	p, okP := decimal(x)
	q, okQ := decimal(y)
	return okP && okQ && p.Cmp(q) == 0
}

func text(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case json.Number:
		return x.String(), true
	}
	return "", false
}

// decimal reads plain decimals only: no exponents, which may take long to compute, and no
// leading zeros, which make it an account number rather than an amount.
func decimal(s string) (*big.Rat, bool) {
	if len(s) > 40 || strings.Trim(s, "-0123456789.") != "" || len(s) > 1 && s[0] == '0' && s[1] != '.' {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// codePlaces is where providers put their error codes; the first found names the answer,
// all of them are searched for what they say about keys.
var codePlaces = []string{
	"/error/code", "/error/decline_code", "/errors/0/code", "/details/0/issue", "code", "error_code", "errorCode",
	"/error/type", "errorType", "name", "error", "type",
}

// codes are the provider's words for what is wrong. Only what looks like a code: a
// sentence could repeat the payload.
func codes(body any) []string {
	var found []string
	for _, place := range codePlaces {
		code, ok := text(at(body, place))
		if ok && code != "" && len(code) <= maxCode && strings.Trim(code, codeCharacters) == "" {
			found = append(found, code)
		}
	}
	return found
}

const codeCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/-"
