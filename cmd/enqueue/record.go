package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// record is an intent as flags or a line of a file say it.
type record struct {
	Tenant      string         `json:"tenant"`
	Operation   string         `json:"operation"`
	Payload     jsontext.Value `json:"payload"`
	OperationID string         `json:"operation_id"`
	Subject     string         `json:"subject"`
	Principal   []string       `json:"principal"`
	Task        string         `json:"task"`
	Parent      string         `json:"parent"`
	Supersedes  string         `json:"supersedes"`
	Compensates string         `json:"compensates"`
	NotBefore   string         `json:"not_before"`
	Deadline    string         `json:"deadline"`
	Priority    int            `json:"priority"`
	Trace       string         `json:"trace"`

	payloadText string
	noWait      bool
}

// parseLine reads a line strictly: a misspelt operation_id that was ignored would be a
// second effect. What a repeated member means is for nobody to guess.
func parseLine(line []byte) (record, error) {
	var r record
	err := jsonv2.Unmarshal(line, &r, jsonv2.RejectUnknownMembers(true))
	if err == nil {
		return r, nil
	}
	if wrong, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		at := cmp.Or(string(wrong.JSONPointer), "the line")
		if wrong.Err == jsonv2.ErrUnknownName {
			return record{}, fmt.Errorf("%s: there is no such name; see enqueue --help", at)
		}
		return record{}, fmt.Errorf("%s: a JSON %s does not belong here", at, wrong.JSONKind)
	}
	return record{}, fmt.Errorf("not a JSON object on one line: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
}

// withDefaults fills in what a line does not say.
func (r record) withDefaults(d record) record {
	r.Tenant = cmp.Or(r.Tenant, d.Tenant)
	r.Operation = cmp.Or(r.Operation, d.Operation)
	r.Subject = cmp.Or(r.Subject, d.Subject)
	r.Task = cmp.Or(r.Task, d.Task)
	r.Parent = cmp.Or(r.Parent, d.Parent)
	r.NotBefore = cmp.Or(r.NotBefore, d.NotBefore)
	r.Deadline = cmp.Or(r.Deadline, d.Deadline)
	r.Priority = cmp.Or(r.Priority, d.Priority)
	r.Trace = cmp.Or(r.Trace, d.Trace)
	if r.Principal == nil {
		r.Principal = d.Principal
	}
	return r
}

// intent turns the record into what package outbox takes. now is the database's clock:
// durations count from it.
func (r record) intent(now func() time.Time) (outbox.Intent, error) {
	in := outbox.Intent{
		Tenant: r.Tenant, Operation: r.Operation, OperationID: r.OperationID, Subject: r.Subject, Principal: r.Principal,
		Task: r.Task, Parent: r.Parent, Supersedes: r.Supersedes, Compensates: r.Compensates, Priority: r.Priority,
		Trace: r.Trace, NoWait: r.noWait,
	}
	if r.Payload != nil {
		in.Payload = json.RawMessage(r.Payload)
	}
	for _, text := range append([]string{
		r.Tenant, r.Operation, r.OperationID, r.Subject, r.Task, r.Parent, r.Supersedes,
		r.Compensates, r.Trace,
	}, r.Principal...) {
		if strings.ContainsRune(text, 0) {
			return in, fmt.Errorf("it contains U+0000, which Postgres cannot store")
		}
	}
	var err error
	if in.NotBefore, err = when("not_before", r.NotBefore, now); err != nil {
		return in, err
	}
	in.Deadline, err = when("deadline", r.Deadline, now)
	return in, err
}

// when reads a time, or a duration from now.
func when(name, text string, now func() time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now().Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %q is neither a time such as 2026-01-31T09:00:00Z nor a duration such as 15m", name, text)
	}
	return t, nil
}
