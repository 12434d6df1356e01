package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func TestFailuresOfOneKindLookAlike(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]string{
		"": "",
		"timeout: no answer in time: after 1.203s": "timeout: no answer in time: after …s",
		"http_503: the provider answered 503":      "http_503: the provider answered …",
		"card_declined":                            "card_declined",
		"429":                                      "429",
		"card_declined: insufficient funds":        "card_declined: insufficient funds",
		"not_connected: nothing was written: dial tcp 10.0.0.7:443: refused":   "not_connected: nothing was written: dial tcp …: refused",
		`account was "acct_1" and is "acct_2"`:                                 `account was "…" and is "…"`,
		"a late success: the provider names it ch_1a9":                         "a late success: the provider names it …",
		"worker 5b1d3f0e-8b0a-4a51-9f0e-0d9a1e0a2b3c did not report":           "worker … did not report",
		"lookup: 7k2f9c7k2f9c7k2f9c7k2f9c7k2f9c7k of no_such_thing was absent": "lookup: … of no_such_thing was absent",
	} {
		if got := failureKind(failure); got != want {
			t.Errorf("%q: %q, want %q", failure, got, want)
		}
	}
}

// command runs the program in this process.
func (b *operateBundle) command(args ...string) (cli.ExitCode, string, string) {
	var stdout, stderr bytes.Buffer
	code := Main(b.ctx, cli.Env{Args: args, Environ: []string{"DATABASE_URL=" + b.url, "USER=ann"}, Stdout: &stdout, Stderr: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestTenThousandAreReplayedAmongWhatCannotBe(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	b.exec(`INSERT INTO outbox.intents (catalog_id, generation, priority, digest_version, tenant, reference, digest, key, payload)
		SELECT c.id, 1, 0, 1, 'shop', md5(n::text), sha256(n::text::bytea), format('["%s"]', n), format('{"order_id":"%s","amount":3,"currency":"EUR"}', n)::json
		FROM generate_series(1, 12000) n, outbox.catalog c WHERE c.operation = 'charge_card.v1' ORDER BY n`)
	b.exec(`INSERT INTO outbox.outbox (intent_id, next_at, lane, catalog_id, state, phase, tenant)
		SELECT i.id, now(), c.lane, c.id, 'accepted', 'due', i.tenant FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id`)
	b.exec(`UPDATE outbox.outbox SET ` + exhausted + ` WHERE intent_id <= 10000`)
	b.exec(`UPDATE outbox.outbox SET ` + unknown + ` WHERE intent_id BETWEEN 10001 AND 11000`)
	b.exec(`DELETE FROM outbox.outbox WHERE intent_id > 11000`)
	b.exec(`INSERT INTO outbox.outcomes (intent_id, attempt, state, code) SELECT n, 3, 'failed_final', 'card_declined' FROM generate_series(11001, 12000) n`)
	b.exec(`INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, claimed_at, reason)
		SELECT n, 3, 'executing', 'failed_retryable', 'not_sent', 'worker', now(), 'http_503: try later' FROM generate_series(1, 10000) n`)

	for _, x := range []struct {
		args []string
		want replaySummary
	}{
		{[]string{"replay", "--operation", "charge_card", "-o", "json"}, replaySummary{DryRun: true}},
		{[]string{"replay", "--operation", "charge_card", "-o", "json", "--yes", "--reason", "r"}, replaySummary{}},
	} {
		began := time.Now()
		code, stdout, stderr := b.command(x.args...)
		t.Logf("%v took %s", x.args, time.Since(began))
		var got replaySummary
		b.must(json.Unmarshal([]byte(stdout), &got))
		if code != cli.OK || got.DryRun != x.want.DryRun || got.Matched != 12000 || got.Send != 10000 || got.Ask != 1000 || got.Refused != 1000 || len(got.Groups) != 3 || got.Money[0].Amount != "30000" {
			got.Groups = nil
			t.Fatalf("%v: %d %s %+v", x.args, code, stderr, got)
		}
	}
	if got := b.text(`SELECT string_agg(event || ' ' || n, ', ' ORDER BY event) FROM (SELECT event::text, count(*) AS n FROM outbox.history WHERE actor = 'ann' GROUP BY 1) h`); got != "noted 1000, replayed 10000" {
		t.Error(got)
	}
	if got := b.text(`SELECT count(*)::text FROM outbox.outbox WHERE state = 'failed_retryable' AND phase = 'due' AND sends = 0`); got != "10000" {
		t.Error(got)
	}
}
