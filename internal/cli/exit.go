package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ExitCode tells a script what happened. The numbers are a promise: see docs/cli.md.
type ExitCode int

// The exit codes of both commands.
const (
	OK          ExitCode = 0
	Failure     ExitCode = 1
	Usage       ExitCode = 2
	Refused     ExitCode = 3
	Conflict    ExitCode = 4
	Busy        ExitCode = 5
	Unsettled   ExitCode = 6
	NotFound    ExitCode = 7
	NotDone     ExitCode = 8
	Interrupted ExitCode = 130
)

// ExitCodes lists every code with what it means and what to do, in the order in which
// they are documented.
func ExitCodes() []ExitMeaning {
	return []ExitMeaning{
		{OK, "ok", "done; for an intent: accepted, in flight, or settled with success", "nothing"},
		{Failure, "failed", "the database, the network or a check failed, or a finding of doctor is an error", "read the line on stderr; what was asked may be asked again"},
		{Usage, "bad usage", "unknown command or flag, bad value, bad configuration, no database named", "correct the call; nothing was done"},
		{Refused, "refused", "the input breaks a rule (of the catalog, of the payload, of a command)", "correct the input; the same again is refused again"},
		{Conflict, "conflict", "the key is taken by an intent with another payload; nothing was recorded", "find out which of the two is meant; never invent a key"},
		{Busy, "busy", "with `--nowait`: another transaction holds the key and has not committed", "ask again, with the same key"},
		{Unsettled, "not settled in time", "`--wait` ended before the intent was settled; it is safe in the ledger", "ask for its status; do not resubmit under another key"},
		{NotFound, "not found", "no intent or operation has that name", "check the name and the tenant"},
		{NotDone, "settled without effect", "the intent ended as failed_final, cancelled or exhausted: the effect has not happened", "read its code and reason; `--supersedes` opens the key again"},
		{Interrupted, "interrupted", "SIGINT or SIGTERM; what was committed before stays", "run it again"},
	}
}

// ExitMeaning is one row of the table of exit codes.
type ExitMeaning struct {
	Code                  ExitCode
	Name, Meaning, Remedy string
}

// Error is a failure that a person can act on.
type Error struct {
	Code ExitCode
	Err  error  // what went wrong
	Hint string // what to do about it, or ""
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v (%s)", e.Err, e.Hint)
}

func (e *Error) Unwrap() error { return e.Err }

// Fail makes an Error; format and args are fmt.Errorf's.
func Fail(code ExitCode, hint, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Hint: hint}
}

// Exit prints err on one line and returns the code to exit with. An error that was
// interrupted by ctx counts as Interrupted; any other error without a code as Failure.
func Exit(ctx context.Context, stderr io.Writer, program string, err error) ExitCode {
	if err == nil {
		return OK
	}
	code := Failure
	var known *Error
	switch {
	case errors.As(err, &known):
		code = known.Code
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code, err = Interrupted, fmt.Errorf("interrupted: %w", err)
	case ctx.Err() != nil:
		// Something that was cut off says more than anybody wants to know.
		code, err = Interrupted, errors.New("interrupted")
	}
	// Nobody is left to tell when this write fails.
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", program, oneLine(err.Error()))
	return code
}

// oneLine joins the lines of joined errors.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return Printable(strings.Join(lines, "; "))
}
