package outbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// A spelling is nothing that an intent is: whoever writes first, in whichever language.
func TestSpellingsOfOnePayloadAreOneIntent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n, same := range [][]string{
		{`{"order":"1","amount":2}`, `{ "amount" : 2.0,` + "\n\t" + `"order": "1"}`, `{"order":"\u0031","amount":20e-1}`, `{"amount":0.2e1,"order":"1"}`},
		{`{"order":"é/😀","list":[1.50,{"b":null,"a":true}]}`, `{"list":[1.5,{"a":true,"b":null}],"order":"\u00e9\/\ud83d\ude00"}`},
		{`{"order":17,"zero":0}`, `{"order":17.0,"zero":-0.0}`},
	} {
		for first := range same { // each is the first once
			tenant := fmt.Sprintf("tenant %d.%d", n, first)
			in := outbox.Intent{Tenant: tenant, Operation: "charge.v1", Payload: raw("%s", same[first])}
			var a outbox.Answer
			if first%2 == 0 {
				a = b.enqueue(in)
			} else {
				a = b.sqlEnqueue(in)
			}
			if a.Kind != outbox.AnswerAccepted {
				t.Fatalf("first: %+v", a)
			}
			for _, payload := range same {
				in.Payload = raw("%s", payload)
				for by, again := range map[string]outbox.Answer{"Go": b.enqueue(in), "SQL": b.sqlEnqueue(in)} {
					if again.Kind != outbox.AnswerInFlight || again.Reference != a.Reference {
						t.Errorf("%s after %s, in %s: %+v", payload, same[first], by, again)
					}
				}
			}
		}
	}
	if got := query[string](b, `SELECT payload::text FROM outbox.intents WHERE tenant = 'tenant 0.1'`); got != `{"amount":2,"order":"1"}` {
		t.Errorf("payload: %s", got)
	}
}

// What a default says may be said or left out.
func TestADefaultIsOneIntentWhetherGivenOrNot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	same := []string{
		`{"order":"1","options":{}}`, `{"order":"1","options":{},"currency":"eur"}`,
		`{"order":"1","options":{"rush":false}}`, `{"currency":"eur","options":{"rush":false},"order":"1"}`,
	}
	for first := range same {
		in := outbox.Intent{Tenant: fmt.Sprint(first), Operation: "bill.v1", Payload: raw("%s", same[first])}
		ref := b.accept(in)
		for _, payload := range same {
			in.Payload = raw("%s", payload)
			for by, a := range map[string]outbox.Answer{"Go": b.enqueue(in), "SQL": b.sqlEnqueue(in)} {
				if a.Kind != outbox.AnswerInFlight || a.Reference != ref {
					t.Errorf("%s after %s, in %s: %+v", payload, same[first], by, a)
				}
			}
		}
		in.Payload = raw(`{"order":"1","options":{"rush":true},"currency":null}`)
		if a := b.enqueue(in); a.Kind != outbox.AnswerConflict || fmt.Sprint(a.Differs) != "[/currency /options/rush]" {
			t.Errorf("another value than the default: %+v", a)
		}
	}
	if n := query[int](b, `SELECT count(DISTINCT payload::text || digest::text) FROM outbox.intents`); n != 1 {
		t.Errorf("%d payloads or digests for one", n)
	}
}

// Intents that differ in what their key is made of are two.
func TestWhatSeparatesKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	business := charge("1042", 24000)
	perSubject := business
	perSubject.Operation, perSubject.Subject = "notify.v1", "ada"
	byID := business
	byID.Operation, byID.OperationID = "mail.v1", "01980000-0000-7000-8000-000000000000"
	arguments := search("rain")
	ask := arguments
	ask.Operation, ask.Subject = "ask.v1", "ada"
	transfer := outbox.Intent{Tenant: "acme", Operation: "transfer.v1", Payload: raw(`{"from":{"iban":"DE1"},"we\"ird name,}":"a","number":2}`)}
	book := business
	book.Operation = "book.v1"

	payload := func(text string) func(*outbox.Intent) {
		return func(in *outbox.Intent) { in.Payload = json.RawMessage(text) }
	}
	tenant := func(in *outbox.Intent) { in.Tenant = "ACME" }
	operation := func(id string) func(*outbox.Intent) { return func(in *outbox.Intent) { in.Operation = id } }
	subject := func(in *outbox.Intent) { in.Subject = "bob" }
	caller := func(in *outbox.Intent) { in.Principal = []string{"another"} }
	host := func(in *outbox.Intent) { in.Principal = append(in.Principal, "another host") }

	for _, x := range []struct {
		claim  string
		in     outbox.Intent
		change func(*outbox.Intent)
		want   outbox.AnswerKind
	}{
		{"another order", business, payload(`{"order":"1043","amount":24000}`), outbox.AnswerAccepted},
		{"a penny", business, payload(`{"order":"1042","amount":24001}`), outbox.AnswerConflict},
		{"the number 1042", business, payload(`{"order":1042,"amount":24000}`), outbox.AnswerAccepted},
		{"a space", business, payload(`{"order":"1042 ","amount":24000}`), outbox.AnswerAccepted},
		{"another tenant", business, tenant, outbox.AnswerAccepted},
		{"another operation", business, operation("ship.v1"), outbox.AnswerAccepted},
		{"another version, same payload", business, operation("charge.v2"), outbox.AnswerInFlight},
		{"another subject, where it is no part of the key", business, subject, outbox.AnswerInFlight},
		{"another caller, where it is no part of the key", business, caller, outbox.AnswerInFlight},

		{"another subject, where keys are per subject", perSubject, subject, outbox.AnswerAccepted},
		{"the subject of another key per subject", perSubject, payload(`{"order":"1042","amount":1}`), outbox.AnswerConflict},
		{"another version, where they are separated", book, operation("book.v2"), outbox.AnswerAccepted},

		{"another operation id", byID, func(in *outbox.Intent) { in.OperationID += "1" }, outbox.AnswerAccepted},
		{"the same operation id in capitals", byID, func(in *outbox.Intent) { in.OperationID = "01980000-0000-7000-8000-00000000000A" }, outbox.AnswerAccepted},
		{"the same operation id, another payload", byID, payload(`{"order":"1042","amount":24001}`), outbox.AnswerConflict},

		{"other arguments", arguments, payload(`{"text":"rain "}`), outbox.AnswerAccepted},
		{"another caller of the same arguments", arguments, caller, outbox.AnswerAccepted},
		{"the same caller through another host", arguments, host, outbox.AnswerInFlight},
		{"the same arguments about another subject, per subject", ask, subject, outbox.AnswerAccepted},
		{"the same arguments in another tenant", ask, tenant, outbox.AnswerAccepted},

		{"one key field of three", transfer, payload(`{"from":{"iban":"DE1"},"we\"ird name,}":"b","number":2}`), outbox.AnswerAccepted},
		{"another number", transfer, payload(`{"from":{"iban":"DE1"},"we\"ird name,}":"a","number":3}`), outbox.AnswerAccepted},
		{"the same number in another spelling", transfer, payload(`{"from":{"iban":"DE1"},"we\"ird name,}":"a","number":2.0}`), outbox.AnswerInFlight},
		{"what is no key field", transfer, payload(`{"from":{"iban":"DE1","bic":"X"},"we\"ird name,}":"a","number":2}`), outbox.AnswerConflict},
		{"two fields that read alike when joined", transfer, payload(`{"from":{"iban":"DE1\",\"a"},"we\"ird name,}":"","number":2}`), outbox.AnswerRefused},
	} {
		for _, bySQL := range []bool{false, true} {
			in, other := x.in, x.in
			in.Task = x.claim // only a note
			x.change(&other)
			tx := b.begin()
			first := b.enqueueIn(tx, in)
			if first.Kind != outbox.AnswerAccepted {
				t.Fatalf("%s: first: %+v", x.claim, first)
			}
			d := door(pgxTx{b.ctx, tx})
			if bySQL {
				d = plainTx{pgxTx{b.ctx, tx}}
			}
			a, err := d.enqueue(in)
			b.must(err)
			if a.Kind != outbox.AnswerInFlight || a.Reference != first.Reference {
				t.Errorf("%s: the first again: %+v", x.claim, a)
			}
			a, err = d.enqueue(other)
			b.must(err)
			if a.Kind != x.want {
				t.Errorf("%s: %+v, want %s", x.claim, a, x.want)
			}
			b.must(tx.Rollback(b.ctx))
		}
	}
	b.wantRows(rows{})
}

func TestAConflictNamesTheVersionThatHasTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := charge("1", 1)
	ref := b.accept(in)
	in.Operation = "charge.v2"
	if a := b.enqueue(in); a.Kind != outbox.AnswerInFlight || a.Operation != "charge.v1" || a.Reference != ref {
		t.Errorf("the same payload under another version: %+v", a)
	}
	in.Payload = raw(`{"order":"1","amount":1,"tip":1}`)
	a := b.enqueue(in)
	if a.Kind != outbox.AnswerConflict || a.Operation != "charge.v1" || !strings.Contains(a.Hint, "charge.v1") || fmt.Sprint(a.Differs) != "[/tip]" {
		t.Errorf("another payload under another version: %+v", a)
	}
	b.wantRows(rows{intents: 1, open: 1, repeats: 2})
}

// A revision of an operation is no new key either: what was asked before stays asked.
func TestARevisionKeepsTheKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := charge("1", 1)
	ref := b.accept(in)
	b.apply(strings.Replace(testCatalog, "name: charge, version: 1,", "name: charge, version: 1, description: revised,", 1))
	if n := query[int](b, "SELECT max(revision) FROM outbox.catalog WHERE operation = 'charge.v1'"); n != 2 {
		t.Fatalf("revision %d", n)
	}
	if a := b.enqueue(in); a.Kind != outbox.AnswerInFlight || a.Reference != ref {
		t.Errorf("after a revision: %+v", a)
	}
	b.accept(charge("2", 1))
	if got := query[string](b, "SELECT string_agg(c.revision::text, ',' ORDER BY i.id) FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id"); got != "1,2" {
		t.Errorf("revisions %s", got)
	}
}

// A retired operation accepts nothing new, and still tells what became of the old.
func TestARetiredOperationAnswersForWhatItHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	open, failed := b.accept(charge("open", 1)), b.accept(charge("failed", 1))
	b.settle(failed, outbox.FailedFinal)
	searched := b.accept(search("rain"))
	b.settle(searched, outbox.Succeeded)
	retire := strings.NewReplacer("name: charge, version: 1,", "name: charge, version: 1, retired: true,", "name: search,", "name: search, retired: true,")
	b.apply(retire.Replace(testCatalog))
	before := b.rows()

	again := charge("failed", 2)
	again.Supersedes = failed
	for by, enqueue := range map[string]func(outbox.Intent) outbox.Answer{"Go": b.enqueue, "SQL": b.sqlEnqueue} {
		if a := enqueue(charge("open", 1)); a.Kind != outbox.AnswerInFlight || a.Reference != open {
			t.Errorf("%s: a repeat: %+v", by, a)
		}
		if a := enqueue(charge("failed", 2)); a.Kind != outbox.AnswerConflict || a.Reference != failed {
			t.Errorf("%s: a conflict: %+v", by, a)
		}
		if a := enqueue(search("rain")); a.Kind != outbox.AnswerSettled || a.Reference != searched {
			t.Errorf("%s: a repeat within a window: %+v", by, a)
		}
		for claim, in := range map[string]outbox.Intent{"new": charge("new", 1), "superseding": again, "other arguments": search("sun")} {
			if a := enqueue(in); a.Kind != outbox.AnswerRefused || a.Code != "operation_retired" || a.Hint == "" {
				t.Errorf("%s: %s: %+v", by, claim, a)
			}
		}
	}
	b.age(window)
	if a := b.enqueue(search("rain")); a.Code != "operation_retired" {
		t.Errorf("after the window: %+v", a)
	}
	before.repeats += 6
	b.wantRows(before)
}

// strange is text of the kinds that break keys which are put together carelessly:
// quotes, brackets, separators, other keys' JSON, other planes, combining characters.
func strange() *rapid.Generator[string] {
	pieces := rapid.SampledFrom([]string{
		"a", "A", "1042", "1", "0", `"`, `'`, `\`, `/`, `,`, `:`, `[`, `]`, `{`, `}`, " ", "\t", "\n", "\x00", "\x01", "\x7f", "\u00a0", "\u2028", "\ufeff",
		"é", "e\u0301", "\u0301", "ß", "İ", "😀", "👩‍👩‍👧", "\U0010ffff", "\uffff", "\ue000", "$1", "%s", "--", ";", "NULL", "null", "true",
		`["1042"]`, `"1042"`, `{"arguments":"`, `{"follow_on":"receipt","parent":"`, `{"key":["1"],"subject":"a"}`, `","subject":"`, `\u0061`, `\"`,
		strings.Repeat("long ", 20),
	})
	return rapid.OneOf(
		rapid.Map(rapid.SliceOfN(pieces, 0, 6), func(p []string) string { return strings.Join(p, "") }),
		rapid.StringN(0, 40, -1),
	)
}

// Two intents have one reference if and only if they are of one tenant, operation name
// and key, and the database derives it as this package's specification does.
func TestNoTwoKeysShareAReference(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type identity struct{ tenant, name, key string }
	owners := map[string]identity{} // by reference
	written := 0
	jsonText := func(s string) string { // canonical JSON, as keys are written
		text, err := json.Marshal(s)
		b.must(err)
		return string(text)
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range 8 {
			in := outbox.Intent{
				Tenant:      strange().Draw(rt, "tenant"),
				Operation:   rapid.SampledFrom([]string{"charge.v1", "charge.v2", "notify.v1", "mail.v1", "search.v1", "ship.v1"}).Draw(rt, "operation"),
				OperationID: strange().Draw(rt, "operation id"),
				Subject:     strange().Draw(rt, "subject"),
				Principal:   []string{strange().Draw(rt, "caller")},
				Payload:     map[string]string{"order": strange().Draw(rt, "order")},
			}
			if in.Operation != "mail.v1" {
				in.OperationID = ""
			}
			enqueue := b.enqueue
			if rapid.Bool().Draw(rt, "by SQL") && !strings.Contains(fmt.Sprint(in), "\x00") {
				enqueue = b.sqlEnqueue
			}
			a := enqueue(in)
			switch a.Kind {
			case outbox.AnswerRefused:
				continue // NUL, or an empty part
			case outbox.AnswerAccepted:
				written++
			case outbox.AnswerInFlight:
			default:
				rt.Fatalf("%+v", a)
			}
			key := query[string](b, "SELECT key FROM outbox.intents WHERE reference = $1", a.Reference)
			name, _, _ := strings.Cut(in.Operation, ".")
			if want := outbox.Reference(b.ledger, in.Tenant, name, key, 1); a.Reference != want {
				rt.Fatalf("reference %s, want %s", a.Reference, want)
			}
			me := identity{in.Tenant, name, jsonText(fmt.Sprint(in.Payload, in.OperationID))}
			switch in.Operation {
			case "notify.v1":
				me.key += jsonText(in.Subject)
			case "search.v1":
				me.key += jsonText(in.Principal[0])
			}
			owner, taken := owners[a.Reference]
			if taken != (a.Kind == outbox.AnswerInFlight) || taken && owner != me {
				rt.Fatalf("%+v got the %s reference of %+v", me, a.Kind, owner)
			}
			owners[a.Reference] = me
			if got := b.get(in.Tenant, a.Reference); got.Kind != outbox.AnswerInFlight {
				rt.Fatalf("its own tenant cannot see it: %+v", got)
			}
			if other := strange().Filter(func(s string) bool { return s != in.Tenant }).Draw(rt, "other tenant"); b.get(other, a.Reference).Kind != outbox.AnswerNotFound {
				rt.Fatalf("tenant %q sees what is of %q", other, in.Tenant)
			}
		}
	})
	distinct := map[identity]bool{}
	for _, who := range owners {
		distinct[who] = true
	}
	if n := query[int](b, "SELECT count(*) FROM outbox.intents"); n != written || len(owners) != written || len(distinct) != written {
		t.Errorf("%d rows, %d accepted, %d references, %d identities", n, written, len(owners), len(distinct))
	}
	t.Logf("%d different keys", written)
}

func TestReferencesAreDerivedAlikeInGoAndSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	storable := strange().Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
	rapid.Check(t, func(rt *rapid.T) {
		parts := [4]string{}
		for i := range parts {
			parts[i] = storable.Draw(rt, "part")
		}
		generation := rapid.IntRange(1, 1<<31-1).Draw(rt, "generation")
		got := query[string](b, `SELECT outbox.reference(outbox.scope_of(outbox.part($1), $2, outbox.part($3), $4), $5)`, parts[0], parts[1], parts[2], parts[3], generation)
		want := outbox.Reference(parts[0], parts[1], parts[2], parts[3], generation)
		if got != want || len(got) != 32 || strings.Trim(got, "0123456789abcdefghijklmnopqrstuv") != "" {
			rt.Fatalf("SQL %q, Go %q", got, want)
		}
	})
	if got := outbox.Reference("00000000-0000-0000-0000-000000000000", "acme", "charge", `["1042"]`, 1); got != "jmit967u75cjc479l6a6465qambq8bkh" {
		t.Errorf("the derivation has changed, and with it every key at every provider: %s", got)
	}
}
