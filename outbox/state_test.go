package outbox_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// constants are the values of all constants of a type in state.go, in their order.
func constants[T ~string](t *testing.T, typeName string) (values []T) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typeName {
			for _, v := range spec.Values {
				value, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, T(value))
			}
		}
		return true
	})
	return values
}

const enumSQL = "SELECT enumlabel::text FROM pg_enum WHERE enumtypid = $1::regtype ORDER BY enumsortorder"

func TestTheDatabaseKnowsTheSameStatesAndEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if got, want := list[outbox.State](b, enumSQL, "outbox.state"), constants[outbox.State](t, "State"); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("states\n%v, in Go\n%v", got, want)
	}
	if got, want := list[outbox.Event](b, enumSQL, "outbox.event"), constants[outbox.Event](t, "Event"); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("events\n%v, in Go\n%v", got, want)
	}
}

type transition struct {
	from  outbox.State
	event outbox.Event
	to    outbox.State
}

// page is what docs/state-machine.md says: the transitions, and the events that change
// nothing.
func page(t *testing.T) (transitions map[transition]bool, recordedOnly []outbox.Event) {
	t.Helper()
	text, err := os.ReadFile("../docs/state-machine.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "\n## Every transition\n")
	if !ok {
		t.Fatal("the page has no table of transitions")
	}
	first, second, ok := strings.Cut(after, "\n## Events that change nothing\n")
	if !ok {
		t.Fatal("the page has no table of events that change nothing")
	}
	second, _, _ = strings.Cut(second, "\n## ")
	transitions = map[transition]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z_]+) \| ([a-z_]+) \| ([a-z_]+) \| `).FindAllStringSubmatch(first, -1) {
		if m[1] == "from" {
			continue
		}
		x := transition{outbox.State(m[1]), outbox.Event(m[2]), outbox.State(m[3])}
		if transitions[x] {
			t.Errorf("%v stands twice on the page", x)
		}
		transitions[x] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z_]+) \| `).FindAllStringSubmatch(second, -1) {
		if m[1] != "event" {
			recordedOnly = append(recordedOnly, outbox.Event(m[1]))
		}
	}
	return transitions, recordedOnly
}

// The machine stands in the code, in the database and on the page, and is one: for every
// two states and an event.
func TestTheMachineIsOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	transitions, recordedOnly := page(t)
	type row struct {
		From, Event, To string
		Legal           bool
	}
	rows, err := b.owner.Query(b.ctx, `SELECT f::text, e::text, t::text, outbox.legal(f, e, t, CASE WHEN f = 'executing' AND t <> 'executing' THEN now() END)
		FROM unnest(enum_range(NULL::outbox.state)) f, unnest(enum_range(NULL::outbox.event)) e, unnest(enum_range(NULL::outbox.state)) t`)
	b.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	b.must(err)
	states, events := constants[outbox.State](t, "State"), constants[outbox.Event](t, "Event")
	if len(all) != len(states)*len(events)*len(states) {
		t.Fatalf("%d combinations", len(all))
	}
	legal := 0
	for _, r := range all {
		x := transition{outbox.State(r.From), outbox.Event(r.Event), outbox.State(r.To)}
		inPage := transitions[x] || slices.Contains(recordedOnly, x.event) && x.from == x.to
		to, ok := x.from.Next(x.event)
		inCode := ok && to == x.to
		if r.Legal != inPage || r.Legal != inCode {
			t.Errorf("%s, %s, %s: database %t, page %t, code %t", x.from, x.event, x.to, r.Legal, inPage, inCode)
		}
		if r.Legal && !slices.Contains(recordedOnly, x.event) {
			legal++
		}
	}
	if legal != len(transitions) || legal < 30 {
		t.Errorf("%d transitions in the database, %d on the page", legal, len(transitions))
	}
	if got, want := recordedOnly, events[slices.Index(events, outbox.LateAnswer):]; !slices.Equal(got, want) {
		t.Errorf("events that change nothing: %v on the page, %v in the code", got, want)
	}
	for _, s := range states {
		for _, e := range recordedOnly {
			if to, ok := s.Next(e); !ok || to != s {
				t.Errorf("%s leads from %s to %s in the code", e, s, to)
			}
		}
		want := s == outbox.Succeeded || s == outbox.FailedFinal || s == outbox.Cancelled
		if s.Terminal() != want {
			t.Errorf("%s: terminal %t", s, s.Terminal())
		}
	}
}

// Every state can be reached, and from every state there is a way to an end.
func TestNoStateIsADeadEnd(t *testing.T) {
	t.Parallel()
	transitions, _ := page(t)
	ends := map[outbox.State]bool{}
	reached := map[outbox.State]bool{outbox.Accepted: true, outbox.AwaitingApproval: true}
	states := constants[outbox.State](t, "State")
	for _, s := range states {
		ends[s] = s.Terminal()
	}
	for range states {
		for x := range transitions {
			ends[x.from] = ends[x.from] || ends[x.to]
			reached[x.to] = reached[x.to] || reached[x.from]
		}
	}
	for _, s := range states {
		if !reached[s] || !ends[s] {
			t.Errorf("%s: reached %t, has a way to an end %t", s, reached[s], ends[s])
		}
	}
	// Unknown never becomes a plain attempt again.
	for x := range transitions {
		if x.from == outbox.OutcomeUnknown && x.to == outbox.Executing {
			t.Errorf("%v", x)
		}
	}
}

// The history refuses what the machine does not know, whoever writes it.
func TestTheHistoryTakesOnlyTheMachinesTransitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.accept(charge("1", 1))
	entry := func(from outbox.State, event outbox.Event, to outbox.State) string {
		return "INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor) SELECT id, 1, '" +
			string(from) + "', '" + string(to) + "', '" + string(event) + "', 'somebody' FROM outbox.intents"
	}
	for _, role := range []string{"", "outbox_worker"} {
		for _, x := range []struct {
			from  outbox.State
			event outbox.Event
			to    outbox.State
			code  string
		}{
			{outbox.Accepted, outbox.Claimed, outbox.Executing, ""},
			{outbox.Succeeded, outbox.LateAnswer, outbox.Succeeded, ""},
			{outbox.OutcomeUnknown, outbox.Claimed, outbox.Executing, "23514"},
			{outbox.Succeeded, outbox.Claimed, outbox.Executing, "23514"},
			{outbox.Executing, outbox.Noted, outbox.Succeeded, "23514"},
			{outbox.FailedFinal, outbox.Replayed, outbox.FailedRetryable, "23514"},
			{outbox.Executing, outbox.NoAnswer, outbox.OutcomeUnknown, "23514"}, // and when was it claimed?
		} {
			if code := b.try(role, entry(x.from, x.event, x.to)); code != x.code {
				t.Errorf("%q: %s on %s to %s: %q, want %q", role, x.from, x.event, x.to, code, x.code)
			}
		}
	}
}

// An outbox row whose columns contradict each other is refused, with the rule's name.
func TestAnOutboxRowContradictsItselfNowhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.accept(charge("1", 1))
	for _, x := range []struct{ set, broken string }{
		{"phase = 'due'", ""},
		{"phase = 'released'", ""},
		{"phase = 'leased', state = 'executing', attempt = 1, claimed_at = now(), claimed_by = 'w'", ""},
		{"phase = 'asking', state = 'outcome_unknown', unknown_attempt = 1, next_at = NULL", ""},
		{"phase = 'probing', state = 'outcome_unknown', unknown_attempt = 1", ""},
		{"phase = 'parked', state = 'needs_review', unknown_attempt = 1, next_at = NULL", ""},
		{"phase = 'parked', state = 'needs_review', next_at = NULL", ""},
		{"phase = 'parked', state = 'exhausted', next_at = NULL", ""},
		{"phase = 'following', state = 'succeeded'", ""},
		{"state = 'failed_retryable', sends = 1, attempt = 1, account = 'a', preset = 'p', request_hash = ''", ""},

		{"phase = 'due', state = 'executing'", "outbox_phase_of_state"},
		{"phase = 'leased'", "outbox_phase_of_state"},
		{"phase = 'asking'", "outbox_phase_of_state"},
		{"phase = 'following'", "outbox_phase_of_state"},
		{"phase = 'parked', state = 'executing'", "outbox_phase_of_state"},
		{"phase = 'parked', state = 'outcome_unknown', unknown_attempt = 1", "outbox_phase_of_state"},
		{"next_at = NULL", "outbox_time_of_phase"},
		{"phase = 'probing', state = 'outcome_unknown', unknown_attempt = 1, next_at = NULL", "outbox_time_of_phase"},
		{"phase = 'asking', state = 'outcome_unknown'", "outbox_unknown_is_sticky"},
		{"unknown_attempt = 1", "outbox_unknown_is_sticky"},
		{"sends = 1, attempt = 1", "outbox_pinned_once_sent"},
		{"sends = 1, attempt = 1, account = 'a', preset = 'p'", "outbox_pinned_once_sent"},
		{"sends = 1, account = 'a', preset = 'p', request_hash = ''", "outbox_attempt_counts"},
		{"sends = -1", "outbox_attempt_counts"},
		{"probes = -1", "outbox_attempt_counts"},
		{"attempt = 1", "outbox_attempt_of_state"},
		{"state = 'failed_retryable'", "outbox_attempt_of_state"},
		{"phase = 'leased', state = 'executing', claimed_by = 'w'", "outbox_claim_is_known"},
		{"phase = 'leased', state = 'executing', claimed_at = now()", "outbox_claim_is_known"},
	} {
		err := pgx.BeginFunc(b.ctx, b.owner, func(tx pgx.Tx) error {
			if _, err := tx.Exec(b.ctx, "SET LOCAL ROLE outbox_worker"); err != nil {
				return err
			}
			if _, err := tx.Exec(b.ctx, "UPDATE outbox.outbox SET "+x.set); err != nil {
				return err
			}
			return errUndo
		})
		var pg *pgconn.PgError
		switch {
		case x.broken == "" && !errors.Is(err, errUndo):
			t.Errorf("%s: %v", x.set, err)
		case x.broken != "" && (!errors.As(err, &pg) || pg.Code != "23514" || pg.ConstraintName != x.broken || pg.TableName != "outbox"):
			t.Errorf("%s: %v, want %s", x.set, err, x.broken)
		}
	}
}
