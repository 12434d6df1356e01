package outbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// refusal is bad input and what is said to it. Nothing is recorded.
type refusal struct {
	claim string
	in    outbox.Intent
	code  string
	path  string
}

// refusals are the same through Go, which canonicalises by itself, and plain SQL.
func refusals(b *testBundle) (all []refusal) {
	add := func(claim, code, path string, in outbox.Intent, change func(*outbox.Intent)) {
		change(&in)
		all = append(all, refusal{claim, in, code, path})
	}
	good := charge("1", 1)
	payload := func(text string) func(*outbox.Intent) {
		return func(in *outbox.Intent) { in.Payload = json.RawMessage(text) }
	}
	long := strings.Repeat("ä", 256)
	open := b.accept(charge("open", 1))
	failed := b.accept(charge("failed", 1))
	b.settle(failed, outbox.FailedFinal)
	done := b.accept(charge("done", 1))
	b.settle(done, outbox.Succeeded)

	add("no tenant", "tenant_invalid", "", good, func(in *outbox.Intent) { in.Tenant = "" })
	add("a tenant of 256 characters", "tenant_invalid", "", good, func(in *outbox.Intent) { in.Tenant = long })
	add("no operation", "operation_missing", "", good, func(in *outbox.Intent) { in.Operation = "" })
	add("an operation that is not in the catalog", "operation_unknown", "", good, func(in *outbox.Intent) { in.Operation = "charge.v9" })
	add("an operation without its version", "operation_unknown", "", good, func(in *outbox.Intent) { in.Operation = "charge" })
	add("no payload", "payload_missing", "", good, func(in *outbox.Intent) { in.Payload = nil })
	add("an operation id of 256 characters", "operation_id_invalid", "", good, func(in *outbox.Intent) { in.OperationID = long })
	add("a subject of 256 characters", "text_too_long", "", good, func(in *outbox.Intent) { in.Subject = long })
	add("a task of 256 characters", "text_too_long", "", good, func(in *outbox.Intent) { in.Task = long })
	add("a trace of 256 characters", "text_too_long", "", good, func(in *outbox.Intent) { in.Trace = long })
	add("17 principals", "principal_invalid", "", good, func(in *outbox.Intent) { in.Principal = strings.Fields(strings.Repeat("p ", 17)) })
	add("principals of 1,025 characters", "principal_invalid", "", good, func(in *outbox.Intent) { in.Principal = []string{"p", strings.Repeat("ä", 1024)} })
	add("a priority of 101", "priority_invalid", "", good, func(in *outbox.Intent) { in.Priority = 101 })
	add("a priority of -101", "priority_invalid", "", good, func(in *outbox.Intent) { in.Priority = -101 })
	add("a deadline at the start", "deadline_before_start", "", good, func(in *outbox.Intent) {
		in.NotBefore = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		in.Deadline = in.NotBefore
	})

	add("an operation id where the key is a business key", "operation_id_not_used", "", good, func(in *outbox.Intent) { in.OperationID = "1" })
	add("no operation id where the key is one", "operation_id_required", "", good, func(in *outbox.Intent) { in.Operation = "mail.v1" })
	add("no caller where the key is caller and arguments", "principal_required", "", search("x"), func(in *outbox.Intent) { in.Principal = nil })
	add("an empty caller", "principal_required", "", search("x"), func(in *outbox.Intent) { in.Principal = []string{"", "host"} })
	add("no subject where keys are per subject", "subject_required", "", good, func(in *outbox.Intent) { in.Operation = "notify.v1" })
	add("no key field", "key_field_missing", "/order", good, payload(`{"amount": 1}`))
	add("an empty key field", "key_field_missing", "/order", good, payload(`{"order": ""}`))
	add("a key field of null", "key_field_missing", "/order", good, payload(`{"order": null}`))
	add("a key field of true", "key_field_missing", "/order", good, payload(`{"order": true}`))
	add("a key field that is an object", "key_field_missing", "/order", good, payload(`{"order": {"id": 1}}`))
	add("a nested key field in something else", "key_field_missing", "/from/iban",
		outbox.Intent{Tenant: "acme", Operation: "transfer.v1"}, payload(`{"from": "DE1", "we\"ird name,}": "a", "number": 1}`))
	add("a strangely named key field", "key_field_missing", `/we"ird name,}`,
		outbox.Intent{Tenant: "acme", Operation: "transfer.v1"}, payload(`{"from": {"iban": "DE1"}, "number": 1}`))

	for _, x := range []struct{ code, path, payload string }{
		{"invalid_json", "", `{"order": "1"`},
		{"invalid_json", "", ``},
		{"invalid_json", "", `{"order": "1"} {}`},
		{"not_an_object", "", `["order"]`},
		{"not_an_object", "", `null`},
		{"too_deep", "/a" + strings.Repeat("/0", 63), `{"a": ` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`},
		{"duplicate_member", "/a~1b/1/order", `{"order": "1", "a/b": [0, {"order": 1, "\u006frder": 1}]}`},
		{"lone_surrogate", "/order", `{"order": "\ud800"}`},
		{"nul_character", "/order", `{"order": "a\u0000b"}`},
		{"number_not_exact", "/amount", `{"order": "1", "amount": 9007199254740993}`},
		{"number_not_exact", "/amount", `{"order": "1", "amount": 0.1234567890123456}`},
		{"number_not_exact", "/list/1", `{"order": "1", "list": [1, 1e999]}`},
	} {
		add("a payload: "+x.code, x.code, x.path, good, payload(x.payload))
	}
	add("a payload over the operation's limit", "too_large", "", outbox.Intent{Tenant: "acme", Operation: "small.v1"},
		payload(`{"order":"`+strings.Repeat("x", 64)+`"}`))

	add("a parent that nobody knows", "parent_unknown", "", good, func(in *outbox.Intent) { in.Parent = "nobody" })
	add("another tenant's parent", "parent_unknown", "", good, func(in *outbox.Intent) { in.Tenant, in.Parent = "other", open })
	add("compensating what nobody knows", "compensates_not_succeeded", "", good, func(in *outbox.Intent) { in.Compensates = "nobody" })
	add("compensating what is open", "compensates_not_succeeded", "", good, func(in *outbox.Intent) { in.Compensates = open })
	add("compensating what failed", "compensates_not_succeeded", "", good, func(in *outbox.Intent) { in.Compensates = failed })
	add("compensating another tenant's", "compensates_not_succeeded", "", good, func(in *outbox.Intent) { in.Tenant, in.Compensates = "other", done })
	add("superseding what nobody knows", "supersedes_unknown", "", good, func(in *outbox.Intent) { in.Supersedes = "nobody" })
	add("superseding another tenant's", "supersedes_unknown", "", charge("failed", 2), func(in *outbox.Intent) { in.Tenant, in.Supersedes = "other", failed })
	add("superseding another key", "supersedes_other_key", "", good, func(in *outbox.Intent) { in.Supersedes = failed })
	add("superseding another operation", "supersedes_other_key", "", charge("failed", 2), func(in *outbox.Intent) { in.Operation, in.Supersedes = "ship.v1", failed })
	add("superseding what is open", "supersedes_not_proven", "", charge("open", 2), func(in *outbox.Intent) { in.Supersedes = open })
	add("superseding what succeeded", "supersedes_not_proven", "", charge("done", 2), func(in *outbox.Intent) { in.Supersedes = done })
	return all
}

func TestBadInputIsRefusedAlikeInGoAndSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := refusals(b)
	before := b.rows()
	viaGo, viaSQL := pgxTx{b.ctx, b.begin()}, plainTx{pgxTx{b.ctx, b.begin()}}
	seen := map[string]bool{}
	for _, x := range all {
		seen[x.code] = true
		for by, d := range map[string]door{"Go": viaGo, "SQL": viaSQL} {
			a, err := d.enqueue(x.in)
			b.must(err)
			if a.Kind != outbox.AnswerRefused || a.Code != x.code || a.Path != x.path || a.Hint == "" || a.Reference != "" {
				t.Errorf("%s, in %s: %+v, want %s at %q", x.claim, by, a, x.code, x.path)
			}
		}
	}
	ins := make([]outbox.Intent, len(all))
	for i := range all {
		ins[i] = all[i].in
	}
	answers, err := outbox.EnqueueMany(b.ctx, viaGo, append(ins, charge("after all that", 1)))
	b.must(err)
	for i, x := range all {
		if a := answers[i]; a.Kind != outbox.AnswerRefused || a.Code != x.code || a.Path != x.path {
			t.Errorf("%s, in a bulk: %+v, want %s at %q", x.claim, a, x.code, x.path)
		}
	}
	for _, d := range []door{viaSQL, viaGo} {
		b.must(d.note("still usable"))
		b.must(d.commit())
	}
	before.intents, before.open = before.intents+1, before.open+1
	b.wantRows(before)

	// The list is whole: every code that the schema or the package can give is there.
	codes := list[string](b, `SELECT DISTINCT m[1] FROM pg_proc, regexp_matches(prosrc, 'code := ''([a-z_]+)''', 'g') m
		WHERE pronamespace = 'outbox'::regnamespace AND proname IN ('refusal', 'key_of', 'prepare', 'supersede', 'generation_of', 'enqueue', 'record', 'admit', 'canonical_fault')`)
	if len(codes) < 20 {
		t.Errorf("only %d codes found in the functions: %v", len(codes), codes)
	}
	for _, code := range codes {
		if !seen[code] && code != "digest_mismatch" && code != "operation_retired" && code != "time_not_finite" {
			t.Errorf("no test for the code %s", code)
		}
	}
}

// What only plain SQL can say.
func TestBadInputThatOnlySQLCanGiveIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin()
	for _, x := range []struct{ claim, args, code, path string }{
		{"a tenant of null", `NULL, 'charge.v1', '{"order": "1"}'`, "tenant_invalid", ""},
		{"an operation of null", `'acme', NULL, '{"order": "1"}'`, "operation_missing", ""},
		{"a payload of null", `'acme', 'charge.v1', NULL`, "payload_missing", ""},
		{"an empty operation id", `'acme', 'mail.v1', '{}', operation_id => ''`, "operation_id_invalid", ""},
		{"an empty subject", `'acme', 'notify.v1', '{"order": "1"}', subject => ''`, "subject_required", ""},
		{"a principal of null", `'acme', 'charge.v1', '{"order": "1"}', principal => '{a,NULL}'`, "principal_invalid", ""},
		{"principals in rows and columns", `'acme', 'charge.v1', '{"order": "1"}', principal => '{{a,b},{c,d}}'`, "principal_invalid", ""},
		{"principals that begin elsewhere", `'acme', 'search.v1', '{}', principal => '[0:1]={a,b}'`, "principal_invalid", ""},
		{"no principals", `'acme', 'search.v1', '{}', principal => '{}'`, "principal_required", ""},
		{"a deadline at the beginning of time", `'acme', 'charge.v1', '{"order": "1"}', deadline => '-infinity'`, "time_not_finite", ""},
		{"a deadline at the end of time", `'acme', 'charge.v1', '{"order": "1"}', deadline => 'infinity'`, "time_not_finite", ""},
		{"a start at the end of time", `'acme', 'charge.v1', '{"order": "1"}', not_before => 'infinity'`, "time_not_finite", ""},
		{"a digest of something else", `'acme', 'charge.v1', '{"order":"1"}', digest => sha256('{}')`, "digest_mismatch", ""},
		{"a digest of half the length", `'acme', 'charge.v1', '{"order":"1"}', digest => '\x00'`, "digest_mismatch", ""},
		{"a digest over what is no JSON", `'acme', 'charge.v1', '{"order":', digest => sha256('{"order":')`, "invalid_json", ""},
		{"a digest over what is no object", `'acme', 'mail.v1', '[]', operation_id => '1', digest => sha256('[]')`, "not_an_object", ""},
		{"a digest over no object, with defaults", `'acme', 'bill.v1', '[]', digest => sha256('[]')`, "not_an_object", ""},
		{"a digest over what is no JSON, with defaults", `'acme', 'bill.v1', '{', digest => sha256('{')`, "invalid_json", ""},
		{"a payload over the limit with its digest", `'acme', 'small.v1', p, digest => sha256(p::bytea)`, "too_large", ""},
	} {
		var text string
		err := tx.QueryRow(b.ctx, `SELECT json_strip_nulls(to_json(a))::text
			FROM (SELECT format('{"order":"%s"}', repeat('x', 64)) AS p OFFSET 0) s, outbox.enqueue(`+x.args+") a").Scan(&text)
		if err != nil {
			t.Fatalf("%s: %v", x.claim, err)
		}
		if a := answerOf(t, text); a.Kind != outbox.AnswerRefused || a.Code != x.code || a.Path != x.path || a.Hint == "" {
			t.Errorf("%s: %s, want %s at %q", x.claim, text, x.code, x.path)
		}
	}
	b.must(tx.Commit(b.ctx))
	b.wantRows(rows{})
}

// What only Go can say, because a database would not take the text: it must not reach
// it, for the error would take the application's transaction along.
func TestTextThatPostgresCannotStoreIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin()
	good := charge("1", 1)
	good.Principal = []string{"ada"}
	var ins []outbox.Intent
	for _, text := range []string{"a\x00b", "a\xffb", "\xed\xa0\x80"} {
		for _, change := range []func(in *outbox.Intent){
			func(in *outbox.Intent) { in.Tenant = text },
			func(in *outbox.Intent) { in.Operation = text },
			func(in *outbox.Intent) { in.OperationID = text },
			func(in *outbox.Intent) { in.Subject = text },
			func(in *outbox.Intent) { in.Principal = []string{"ada", text} },
			func(in *outbox.Intent) { in.Task = text },
			func(in *outbox.Intent) { in.Parent = text },
			func(in *outbox.Intent) { in.Supersedes = text },
			func(in *outbox.Intent) { in.Compensates = text },
			func(in *outbox.Intent) { in.Trace = text },
		} {
			in := good
			change(&in)
			ins = append(ins, in)
		}
	}
	for _, at := range []time.Time{time.Unix(1<<60, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)} {
		in := good
		in.NotBefore = at
		ins = append(ins, in)
		in = good
		in.Deadline = at
		ins = append(ins, in)
	}
	for _, in := range ins {
		a, err := outbox.Enqueue(b.ctx, tx, in)
		if err != nil {
			t.Fatalf("%q: %v", fmt.Sprint(in), err)
		}
		want := "text_invalid"
		if !in.NotBefore.IsZero() || !in.Deadline.IsZero() {
			want = "time_out_of_range"
		}
		if a.Kind != outbox.AnswerRefused || a.Code != want || a.Hint == "" {
			t.Errorf("%q: %+v, want %s", fmt.Sprint(in), a, want)
		}
	}
	answers, err := outbox.EnqueueMany(b.ctx, tx, append(ins, good))
	b.must(err)
	for i, a := range answers[:len(ins)] {
		if a.Kind != outbox.AnswerRefused {
			t.Errorf("in a bulk, %q: %+v", fmt.Sprint(ins[i]), a)
		}
	}
	if a := answers[len(ins)]; a.Kind != outbox.AnswerAccepted {
		t.Errorf("the good one in the bulk: %+v", a)
	}
	invalid := good
	invalid.Payload = json.RawMessage("{\"order\": \"a\xff\"}")
	if a := b.enqueueIn(tx, invalid); a.Code != "invalid_utf8" || a.Path != "/order" {
		t.Errorf("a payload that is no UTF-8: %+v", a)
	}
	for _, text := range []string{"a\x00b", "a\xffb"} {
		for _, pair := range [][2]string{{text, "ref"}, {"acme", text}} {
			a, err := outbox.Get(b.ctx, tx, pair[0], pair[1])
			if err != nil || a.Kind != outbox.AnswerNotFound {
				t.Errorf("Get(%q, %q): %+v %v", pair[0], pair[1], a, err)
			}
		}
	}
	b.must(tx.Commit(b.ctx))
	b.wantRows(rows{intents: 1, open: 1})
}
