package e2e_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// says runs one of our commands with --output json and returns the objects that it
// writes, one a line. The test fails if it ends with another exit code.
func says[T any](b *bundle, code int, name string, args ...string) (all []T) {
	b.t.Helper()
	ran := b.call("", nil, command(b.t, name), append(args, "--output", "json")...)
	if ran.code != code {
		b.t.Fatalf("%s %s ended with %d, want %d: %s%s", name, strings.Join(args, " "), ran.code, code, ran.stdout, ran.stderr)
	}
	d := json.NewDecoder(strings.NewReader(ran.stdout))
	for {
		var v T
		switch err := d.Decode(&v); err {
		case nil:
			all = append(all, v)
		case io.EOF:
			return all
		default:
			b.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, ran.stdout)
		}
	}
}

// simulatorProcess starts the simulator as a process and returns where it listens.
func (b *bundle) simulatorProcess() (c *child, http, smtp string) {
	b.t.Helper()
	out, in, err := os.Pipe()
	b.must(err)
	defer func() { _ = out.Close() }()
	cmd := exec.Command(program(b.t), "simulator")
	cmd.Env, cmd.Stdout = b.environment(), in
	c = b.start("simulator", cmd)
	_ = in.Close()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	b.must(err)
	var at struct{ HTTP, SMTP string }
	b.must(json.Unmarshal(line, &at))
	return c, at.HTTP, at.SMTP
}

// What somebody does on the first day, with the programs alone, and what scripts may rely
// on: exit codes and JSON.
func TestANewUserGetsFromAnEmptyDatabaseToAChargeByTheCommandsAlone(t *testing.T) {
	t.Parallel()
	b := newBundle(t, pgtest.EmptyURL(t))
	provider, http, smtp := b.simulatorProcess()
	sim := simulator.NewClient(http)

	type migrated struct{ Applied []string }
	if m := says[migrated](b, 0, "outbox-worker", "migrate"); len(m) != 1 || len(m[0].Applied) == 0 {
		t.Errorf("migrate: %+v", m)
	}
	if m := says[migrated](b, 0, "outbox-worker", "migrate"); len(m) != 1 || len(m[0].Applied) != 0 {
		t.Errorf("migrate again: %+v", m)
	}
	file := filepath.Join(b.dir, "catalog.yaml")
	b.must(os.WriteFile(file, []byte(withTimes(patientCall, patientLease)), 0o600))
	type change struct {
		What, Operation string
		Revision        int
	}
	applied := says[change](b, 0, "outbox-worker", "catalog", "apply", file)
	if i := len(applied) - 1; i < 0 || applied[i] != (change{"added", "send_receipt.v1", 1}) {
		t.Errorf("catalog apply: %+v", applied)
	}
	b.must(os.WriteFile(b.config(), []byte(workerConfig(http, smtp, `{charge_card: {path: /v1/charges}}`)), 0o600))
	worker := b.worker("worker")
	b.ready(worker)

	enqueue := func(code int, payload string, more ...string) outbox.Answer {
		t.Helper()
		args := append([]string{"--tenant", "shop", "--operation", "charge_card.v1", "--payload", payload}, more...)
		answers := says[outbox.Answer](b, code, "enqueue", args...)
		if len(answers) != 1 {
			t.Fatalf("enqueue: %+v", answers)
		}
		return answers[0]
	}
	const payload = `{"order_id":"1042","amount":24000,"currency":"EUR"}`
	done := enqueue(0, payload, "--wait", "--timeout", "1m")
	effects, err := sim.Effects(b.ctx, simulator.Charges, done.Reference)
	b.must(err)
	if done.Kind != outbox.AnswerSettled || done.State != outbox.Succeeded || len(effects) != 1 || done.ProviderID != effects[0].ProviderID {
		t.Errorf("enqueue --wait: %+v, effects %+v", done, effects)
	}
	if again := enqueue(0, `{"currency": "EUR", "amount": 24000.0, "order_id": "1042"}`); !reflect.DeepEqual(again, done) {
		t.Errorf("enqueue again: %+v\nwant %+v", again, done)
	}
	if other := enqueue(4, strings.Replace(payload, "24000", "24001", 1)); other.Kind != outbox.AnswerConflict || !reflect.DeepEqual(other.Differs, []string{"/amount"}) {
		t.Errorf("enqueue with another amount: %+v", other)
	}
	if bad := enqueue(3, `{"order_id":"1044","amount":-1,"currency":"EUR"}`); bad.Kind != outbox.AnswerRefused || bad.Path != "/amount" {
		t.Errorf("enqueue of a negative amount: %+v", bad)
	}
	b.must(sim.Script(b.ctx, simulator.Fault{Kind: simulator.Refuse, Service: simulator.Charges}))
	declined := enqueue(8, strings.Replace(payload, "1042", "1043", 1), "--wait", "--timeout", "1m")
	if declined.State != outbox.FailedFinal || declined.Code != "card_declined" {
		t.Errorf("a declined card: %+v", declined)
	}

	type listed struct {
		Reference, State, Operation, Tenant string
		Attempt                             int
	}
	want := []listed{
		{declined.Reference, "failed_final", "charge_card.v1", "shop", 1},
		{done.Reference, "succeeded", "charge_card.v1", "shop", 1},
	}
	if got := says[listed](b, 0, "outbox-worker", "list"); !reflect.DeepEqual(got, want) {
		t.Errorf("list: %+v\nwant %+v", got, want)
	}
	type shown struct {
		listed
		ProviderID string `json:"provider_id"`
		History    []struct{ Event, To, Actor string }
		Repeats    []struct{ Answer string }
	}
	show := says[shown](b, 0, "outbox-worker", "show", done.Reference[:12])
	if len(show) != 1 || show[0].listed != want[1] || show[0].ProviderID != done.ProviderID ||
		len(show[0].History) != 4 || show[0].History[1] != (struct{ Event, To, Actor string }{"claimed", "executing", "worker"}) || len(show[0].Repeats) != 2 {
		t.Errorf("show: %+v", show)
	}
	says[shown](b, 7, "outbox-worker", "show", strings.Repeat("0", 32))

	for _, c := range []*child{worker, provider} {
		c.terminate()
		if code := c.exit(stopLimit); code != 0 {
			t.Errorf("%s ended with %d", c.name, code)
		}
	}
}

// A lease that does not cover its call would have a slow call declared unknown while it
// runs. The catalog refuses one; a worker that meets one all the same does not start.
func TestAWorkerRefusesToStartOnALeaseThatDoesNotCoverItsCall(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	_, err := b.pool.Exec(b.ctx, `INSERT INTO outbox.catalog (version, revision, lane, max_payload, key_rule, operation, name, key_fields, defaults, digest, spec)
		SELECT version, revision + 1, lane, max_payload, key_rule, operation, name, key_fields, defaults, sha256('short'), jsonb_set(spec, '{timeouts,lease}', '"21s"')
		FROM outbox.catalog WHERE operation = 'charge_card.v1'`)
	b.must(err)
	b.refuses("charge_card.v1", "a lease of 21s does not cover a call of 20s", "raise timeouts.lease")
}

// Of such a provider nobody will ever learn what became of a lost answer. Somebody has to
// have said what to do then.
func TestAWorkerRefusesToStartOnAProviderWithNeitherKeyNorLookupWithoutAChoice(t *testing.T) {
	t.Parallel()
	b := setup(t, strings.Replace(withTimes(patientCall, patientLease), "class: non_repeatable\n    unknown: at_most_once", "class: key_protected", 1))
	b.refuses("charge_card.v1", "neither remembers keys nor can be asked", "at_most_once or at_least_once")
}

// refuses starts a worker, which must end by itself with an error that says all that, and
// send nothing.
func (b *bundle) refuses(words ...string) {
	b.t.Helper()
	reference := b.charge(plain("1"))
	worker := b.worker("worker")
	if code := worker.exit(testLimit); code != 2 {
		b.t.Errorf("it ended with %d, want 2: trying again does not help", code)
	}
	for _, w := range words {
		if !strings.Contains(worker.tail(), w) {
			b.t.Errorf("it did not say %q:\n%s", w, worker.tail())
		}
	}
	b.counted(simulator.Charges, reference, 0, 0)
	b.state(reference, outbox.Accepted)
}
