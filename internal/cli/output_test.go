package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTableAlignsWhatTerminalsShow(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	err := Output{w: &b}.Table([][]string{
		{"NAME", "N"},
		{"会社", "1"},                // four columns wide
		{"cafe\u0301", "2"},        // the accent combines
		{"\x1b[31mred\u202e", "3"}, // nobody moves the cursor or turns the text around
		{"a\nb", "4"},
	})
	want := `NAME               N
会社               1
` + "cafe\u0301" + `               2
\x1b[31mred\u202e  3
a\nb               4
`
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestExit(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		claim string
		ctx   context.Context
		err   error
		code  ExitCode
		line  string
	}{
		{"nothing to say", context.Background(), nil, OK, ""},
		{"a code and a hint", context.Background(), Fail(Refused, "do that", "no %d", 7), Refused, "prog: no 7 (do that)\n"},
		{"wrapped", context.Background(), fmt.Errorf("outer: %w", Fail(Busy, "", "inner")), Busy, "prog: outer: inner\n"},
		{"without a code", context.Background(), errors.New("x"), Failure, "prog: x\n"},
		{"several lines become one", context.Background(), errors.Join(errors.New("a"), errors.New("b")), Failure, "prog: a; b\n"},
		{"interrupted", cancelled, fmt.Errorf("read: %w", context.Canceled), Interrupted, "prog: interrupted: read: context canceled\n"},
		{"cancelled by somebody else", context.Background(), context.Canceled, Failure, "prog: context canceled\n"},
	} {
		t.Run(test.claim, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if code := Exit(test.ctx, &b, "prog", test.err); code != test.code || b.String() != test.line {
				t.Errorf("%d %q", code, b.String())
			}
		})
	}
}

func TestExitCodesAreDifferent(t *testing.T) {
	t.Parallel()
	seen := map[ExitCode]bool{}
	for _, m := range ExitCodes() {
		if seen[m.Code] || m.Name == "" || m.Meaning == "" || m.Remedy == "" {
			t.Errorf("%+v", m)
		}
		seen[m.Code] = true
	}
}
