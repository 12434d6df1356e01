package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

// evaluationTime bounds one jq expression. What follows a success takes microseconds;
// this is for loops that do not end.
const evaluationTime = time.Second

// impure are functions whose value depends on the worker, its environment or its
// clock, or that end the evaluation early. A follow-on rendered by another worker an
// hour later must be the same.
var impure = []string{
	"$ENV", "env", "now", "localtime", "strflocaltime", "input", "inputs", "debug", "stderr", "input_filename",
	"input_line_number", "halt", "halt_error", "get_search_list", "modulemeta", "builtins", "$__prog_args",
}

// filter is a compiled jq expression, for concurrent use.
type filter struct{ code *gojq.Code }

func newFilter(text string) (*filter, error) {
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, err
	}
	return &filter{code}, nil
}

// lintFilter finds what compiles but must not be used.
func lintFilter(text string) error {
	query, err := gojq.Parse(text)
	if wrong, ok := errors.AsType[*gojq.ParseError](err); ok {
		return fmt.Errorf("%w at byte %d", err, wrong.Offset)
	}
	if err != nil {
		return err
	}
	if len(query.Imports) > 0 {
		return errors.New("modules cannot be imported")
	}
	var used []string
	calls(reflect.ValueOf(query), &used)
	for _, name := range used {
		if slices.Contains(impure, name) {
			return fmt.Errorf("%s may not be used: the result must depend on nothing but the intent and its outcome", name)
		}
	}
	return nil
}

// calls collects the names of all functions called in a syntax tree. By reflection, so
// that no kind of node can be forgotten.
func calls(v reflect.Value, names *[]string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			calls(v.Elem(), names)
		}
	case reflect.Slice:
		for i := range v.Len() {
			calls(v.Index(i), names)
		}
	case reflect.Struct:
		if f, ok := v.Interface().(gojq.Func); ok {
			*names = append(*names, f.Name)
		}
		for i := range v.NumField() {
			calls(v.Field(i), names)
		}
	}
}

// one evaluates the filter, which must give exactly one value. An evaluation that took
// too long gets a second chance: perhaps the process stood still, and not the filter.
func (f *filter) one(ctx context.Context, input any) (any, error) {
	result, err := f.try(ctx, input)
	if errors.Is(err, errTooSlow) {
		result, err = f.try(ctx, input)
	}
	return result, err
}

func (f *filter) try(ctx context.Context, input any) (result any, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, evaluationTime, errTooSlow)
	defer cancel()
	defer func() {
		// A fault of the interpreter fails this follow-on and not the worker.
		if p := recover(); p != nil {
			err = fmt.Errorf("the jq interpreter failed: %v", p)
		}
	}()
	outputs := f.code.RunWithContext(ctx, input)
	result, ok := outputs.Next()
	if !ok {
		return nil, errors.New("it gives no value")
	}
	if err, failed := result.(error); failed {
		return nil, evaluationError(ctx, err)
	}
	second, more := outputs.Next()
	if err, failed := second.(error); failed {
		return nil, evaluationError(ctx, err)
	}
	if more {
		return nil, errors.New("it gives more than one value")
	}
	return result, nil
}

var errTooSlow = fmt.Errorf("it does not end within %s", evaluationTime)

func evaluationError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, thrown := errors.AsType[gojq.ValueError](err); thrown {
		return err // the catalog's own words
	}
	return errors.New(withoutValues(err.Error()))
}

// withoutValues cuts an interpreter's message before the first value that it shows:
// payloads do not belong into logs. What the message says about types stays.
func withoutValues(message string) string {
	if before, _, ok := strings.Cut(message, " cannot be applied to "); ok && !strings.Contains(before, "(") {
		return before + " cannot be applied to this value"
	}
	before, after, shows := strings.Cut(message, ": ")
	if !shows || strings.Contains(before, "(") {
		before, _, _ = strings.Cut(message, "(")
		return strings.TrimSpace(before)
	}
	first, _, _ := strings.Cut(after, " ")
	if slices.Contains([]string{"null", "boolean", "number", "string", "array", "object"}, first) {
		return before + ": " + first
	}
	return before
}
