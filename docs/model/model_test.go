// Package model_test checks the protocol with Spin: that it keeps its promises in every
// order of events within the bounds, and that no guard can be taken out. README.md says
// what is modelled.
package model_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a provider promises.
const (
	nothing    = "nothing"
	absence    = "lookup+proof"
	keys       = "keys"
	keysLookup = "keys+lookup"
	everything = "keys+lookup+proof"
)

// The properties, by the names of the assertions that state them in the models.
var (
	once  = regexp.MustCompile(`\(effects==0\)`)                                                    // one key, one effect
	proof = regexp.MustCompile(`st!=\d+\)&&|\(effects==0\)`)                                        // what is proven not to have happened never does
	truth = regexp.MustCompile(`outcome!=\d+\)+\|\|\(outcome==\d+\)|effects>=1|\|\|\(effects==0\)`) // the ledger says what is so
	ends  = regexp.MustCompile(`max_attempts|followons==1\)&&`)                                     // nothing is lost
	next  = regexp.MustCompile(`followons==1\)`)                                                    // one follow-on a success
	iff   = regexp.MustCompile(`row\[i\]==\d+`)                                                     // only what is committed happens
)

func TestTheProtocolKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, provider string
		bounds         string
	}{
		{"neither keys nor lookup", nothing, ""},
		{"neither, withdrawn or too late", nothing, "CANCEL=1 DEADLINE=1 ATTEMPTS=4"},
		{"absence is proof", absence, ""},
		{"absence is proof, withdrawn or too late", absence, "LOSSES=0 ATTEMPTS=4 CANCEL=1 DEADLINE=1"},
		{"keys", keys, "LOSSES=0 ATTEMPTS=4 HUMAN=0"},
		{"keys and lookup", keysLookup, "LOSSES=0 ATTEMPTS=4 HUMAN=0"},
		{"keys, absence is proof", everything, "LOSSES=0 ATTEMPTS=4 HUMAN=0"},
		{"keys, absence is proof, withdrawn or too late", everything, "LOSSES=0 ATTEMPTS=4 CRASHES=0 HUMAN=0 CANCEL=1 DEADLINE=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dispatch.holds(t, "PROVIDER="+c.provider, c.bounds)
		})
	}
	t.Run("enqueue", func(t *testing.T) {
		t.Parallel()
		enqueue.holds(t)
	})
}

func TestNoGuardCanBeTakenOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		guard, provider string
		breaks          *regexp.Regexp
	}{
		{"claim_cas", nothing, once},
		{"permit_before_write", nothing, truth},
		{"settle_fence", nothing, truth},
		{"probe_fence", absence, once},
		{"sticky_lease", nothing, truth},
		{"sticky_probe", keys, once},
		{"lag_wait", absence, proof},
		{"lag_from_last_send", everything, proof},
		{"straggler_check", absence, proof},
		{"straggler_check_after_resend", everything, proof},
		{"remembered_is_no_proof", everything, proof},
		{"replay_deadline", keys, once},
		{"replay_deadline_at_write", keys, once},
		{"unknown_taken_over", keys, truth},
		{"release_cas", nothing, ends},
		{"release_lease", nothing, ends},
		{"lease_sweep", nothing, ends},
		{"probe_sweep", absence, ends},
		{"follow_in_settlement", nothing, ends},
		{"follow_key_and_tx", nothing, next},
	} {
		t.Run(c.guard, func(t *testing.T) {
			t.Parallel()
			bounds := "LOSSES=1"
			if c.breaks != ends {
				bounds = "LOSSES=0 ATTEMPTS=4 CANCEL=1"
			}
			dispatch.breaks(t, c.breaks, "PROVIDER="+c.provider, "WITHOUT="+c.guard, bounds)
		})
	}
	for guard, breaks := range map[string]*regexp.Regexp{
		"unique_key": once, "one_transaction": iff, "supersede_only_proven": once, "close_exhausted": once,
	} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			enqueue.breaks(t, breaks, "WITHOUT="+guard)
		})
	}
}

// Every run ends: nothing goes round for ever, so that what waits at the end of a run,
// which the models judge, is all that can be lost.
func TestEveryRunEnds(t *testing.T) {
	t.Parallel()
	for provider, bounds := range map[string]string{
		nothing: "ATTEMPTS=4", absence: "ATTEMPTS=4 HUMAN=0", everything: "LOSSES=0 ATTEMPTS=3 CRASHES=0 HUMAN=0 TICKS=1",
	} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			cycles.holds(t, "PROVIDER="+provider, bounds)
		})
	}
}

// Either of two is enough. The transaction and the key of a follow-on: follow_key_and_tx
// takes out both. The lock on a key's head decides in peace who supersedes; the unique key
// would hold all the same.
func TestSomeGuardsStandTwice(t *testing.T) {
	t.Parallel()
	for _, guard := range []string{"follow_key", "follow_tx"} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			dispatch.holds(t, "PROVIDER="+nothing, "WITHOUT="+guard, "LOSSES=0 ATTEMPTS=4")
		})
	}
	t.Run("head_lock", func(t *testing.T) {
		t.Parallel()
		enqueue.holds(t, "WITHOUT=head_lock")
	})
}

// The races that are left when an assumption about the world does not hold. They are
// expected, documented in README.md, and would be news if they disappeared.
func TestResidualRaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		assumption, provider string
		breaks               *regexp.Regexp
	}{
		{"network_within_lag", absence, proof},
		{"pause_within_memory", keys, once},
		{"operator_knows_stragglers", nothing, truth},
	} {
		t.Run(c.assumption, func(t *testing.T) {
			t.Parallel()
			dispatch.breaks(t, c.breaks, "PROVIDER="+c.provider, "WITHOUT="+c.assumption, "LOSSES=0 ATTEMPTS=4")
		})
	}
}

// model is a checker, generated and compiled once.
type model struct {
	source string
	mode   string // what to look for: -DSAFETY, or -DNP for runs that do not end
	flag   string
	once   sync.Once
	pan    string
	err    error
}

var (
	dispatch = &model{source: "dispatch.pml", mode: "-DSAFETY", flag: "-w22"}
	cycles   = &model{source: "dispatch.pml", mode: "-DNP", flag: "-l"}
	enqueue  = &model{source: "enqueue.pml", mode: "-DSAFETY", flag: "-w16"}
)

var (
	checkers string                                  // directory of the compiled ones
	running  = make(chan struct{}, runtime.NumCPU()) // a checker takes a core and up to 300 MB
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if checkers, err = os.MkdirTemp("", "outbox-model-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(checkers) }()
		return m.Run()
	}())
}

// build makes the checker. Without Spin and a C compiler the test is skipped, in CI it fails.
func (m *model) build(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			const how = "the model is not checked: install Spin and a C compiler (Debian: apt-get install spin gcc libc6-dev)"
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s: %v", how, err)
			}
			t.Skipf("%s: %v", how, err)
		}
	}
	m.once.Do(func() {
		dir := filepath.Join(checkers, m.source+m.mode)
		source, err := filepath.Abs(m.source)
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if err != nil {
			m.err = err
			return
		}
		// -DNOREDUCE: partial order reduction gains nothing where all share one row.
		for _, args := range [][]string{
			{"spin", "-a", source},
			{"gcc", "-O2", "-w", m.mode, "-DCOLLAPSE", "-DNOREDUCE", "-o", "pan", "pan.c"},
		} {
			cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("Error:")) {
				m.err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
				return
			}
		}
		m.pan = filepath.Join(dir, "pan")
	})
	if m.err != nil {
		t.Fatal(m.err)
	}
}

// run runs the checker in dir, which gets its trail.
func (m *model) run(t *testing.T, dir string, settings []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.pan, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), strings.Fields(strings.Join(settings, " "))...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the checker took too long: %v\n%s", err, out)
	}
	return string(out)
}

var (
	violated = regexp.MustCompile(`pan:1: (.*) \(at depth`)
	errorsAt = regexp.MustCompile(`depth reached (\d+), errors: (\d+)`)
	states   = regexp.MustCompile(`(\d+) states, stored`)
	partial  = regexp.MustCompile(`(?i)search not completed|max search depth too small|out of memory`)
)

// check searches all orders of events and returns the violation it found, or "".
func (m *model) check(t *testing.T, settings []string) (violation, story string) {
	t.Helper()
	m.build(t)
	running <- struct{}{}
	defer func() { <-running }()
	dir, began := t.TempDir(), time.Now()
	// -E: that a process waits for ever is judged by the models' own assertions.
	out := m.run(t, dir, settings, "-E", "-m10000", m.flag)
	found, stored := errorsAt.FindStringSubmatch(out), states.FindStringSubmatch(out)
	if found == nil || stored == nil {
		t.Fatalf("the checker did not say what it found:\n%s", out)
	}
	t.Logf("%s: %s states, depth %s, %s", strings.Join(settings, " "), stored[1], found[1], time.Since(began).Round(100*time.Millisecond))
	if found[2] == "0" {
		if partial.MatchString(out) {
			t.Fatalf("the search was not complete:\n%s", out)
		}
		return "", ""
	}
	v := violated.FindStringSubmatch(out)
	if v == nil {
		t.Fatalf("an error that is no violation:\n%s", out)
	}
	var told []string
	for line := range strings.Lines(m.run(t, dir, settings, "-r", m.source+".trail")) {
		if event, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			told = append(told, "  "+event+"\n")
		}
	}
	return v[1], strings.Join(told, "")
}

func (m *model) holds(t *testing.T, settings ...string) {
	t.Helper()
	if violation, story := m.check(t, settings); violation != "" {
		t.Errorf("%s\n%s", violation, story)
	}
}

func (m *model) breaks(t *testing.T, property *regexp.Regexp, settings ...string) {
	t.Helper()
	violation, story := m.check(t, settings)
	switch {
	case violation == "":
		t.Error("holds all the same, so it guards nothing here")
	case !property.MatchString(violation):
		t.Errorf("breaks another property: %s\n%s", violation, story)
	default:
		t.Logf("%s\n%s", violation, story)
	}
}
