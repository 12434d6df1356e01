package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// report prints an answer; one that is not good is an error with its exit code.
func (r *recorder) report(a outbox.Answer) error {
	if err := r.print(a); err != nil {
		return err
	}
	if code := codeOf(a); code != cli.OK {
		return &cli.Error{Code: code, Err: errors.New(summary(a)), Hint: strings.TrimSuffix(a.Hint, ".")}
	}
	return nil
}

// print writes an answer to standard output.
func (r *recorder) print(a outbox.Answer) error {
	out := r.app.Output()
	if out.JSON {
		return out.Encode(a)
	}
	if codeOf(a) != cli.OK && a.Reference == "" {
		return nil // the error line says it all
	}
	return out.Fields(
		"answer", string(a.Kind),
		"reference", a.Reference,
		"state", string(a.State),
		"operation", a.Operation,
		"attempt", attempt(a.Attempt),
		"differs", strings.Join(a.Differs, " "),
		"provider id", a.ProviderID,
		"code", a.Code,
		"reason", a.Reason,
		"result", string(a.Result),
		"committed", cli.Time(a.CreatedAt),
		"settled", cli.Time(a.SettledAt),
		"hint", map[bool]string{true: a.Hint}[codeOf(a) == cli.OK],
	)
}

func attempt(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// codeOf is the exit code that an answer stands for.
func codeOf(a outbox.Answer) cli.ExitCode {
	switch a.Kind {
	case outbox.AnswerRefused:
		return cli.Refused
	case outbox.AnswerConflict:
		return cli.Conflict
	case outbox.AnswerBusy:
		return cli.Busy
	case outbox.AnswerNotFound:
		return cli.NotFound
	case outbox.AnswerSettled, outbox.AnswerExpired:
		if a.State != outbox.Succeeded {
			return cli.NotDone
		}
	}
	return cli.OK
}

// summary is an answer that is not good, in a few words.
func summary(a outbox.Answer) string {
	switch a.Kind {
	case outbox.AnswerRefused:
		return strings.TrimSpace(fmt.Sprintf("refused: %s %s", a.Code, place(a.Path)))
	case outbox.AnswerConflict:
		if len(a.Differs) > 0 {
			return fmt.Sprintf("conflict with %s: %s differs", a.Reference, strings.Join(a.Differs, ", "))
		}
		return fmt.Sprintf("conflict with %s: the payload differs", a.Reference)
	case outbox.AnswerBusy:
		return "busy"
	case outbox.AnswerNotFound:
		return "not found"
	default:
		return strings.TrimSpace(fmt.Sprintf("%s ended as %s %s", a.Reference, a.State, a.Code))
	}
}

func place(path string) string {
	if path == "" {
		return ""
	}
	return "at " + path
}
