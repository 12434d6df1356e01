package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// Limits of what a catalog may say.
const (
	maxPayload  = 1 << 20 // bytes
	maxSpec     = 1 << 20
	maxFilter   = 16 << 10
	maxText     = 4 << 10
	maxAttempts = 100
	maxPeople   = 10
	maxFields   = 16
	maxParallel = 10_000

	maxCall      = time.Hour
	maxLease     = 24 * time.Hour
	maxDelay     = 7 * 24 * time.Hour
	maxWindow    = 30 * 24 * time.Hour
	maxReconcile = 365 * 24 * time.Hour
)

var (
	nameForm      = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	laneForm      = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	operationForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}\.v[1-9][0-9]{0,8}$`)
)

const (
	nameHint = "lower-case letters, digits and _, beginning with a letter, 63 at most"
	laneHint = "lower-case letters, digits, _ and -, beginning with a letter, 63 at most"
)

// checker collects what is wrong with a catalog.
type checker struct {
	*Catalog
	known    []Problem // found by the decoder: do not judge what it could not read
	problems []Problem
}

// check returns what is wrong with the catalog, beside what is known already.
func (c *Catalog) check(known []Problem) []Problem {
	k := &checker{Catalog: c, known: known}
	k.lanes()
	k.operations()
	var readable []Operation
	for i, o := range c.Operations {
		if !k.unread("/operations" + step(i)) {
			readable = append(readable, o)
		}
	}
	return append(k.problems, c.together(readable)...)
}

func (k *checker) refuse(path, problem, hint string) {
	k.problems = append(k.problems, k.source.problem(path, problem, hint))
}

// unread tells whether the decoder could not read the part at path.
func (k *checker) unread(path string) bool {
	for _, p := range k.known {
		if p.Path == path || strings.HasPrefix(p.Path, path+"/") {
			return true
		}
	}
	return false
}

// pathOf is where the operation stands in the file.
func (c *Catalog) pathOf(o Operation) string {
	return "/operations" + step(slices.IndexFunc(c.Operations, func(mine Operation) bool { return mine.ID() == o.ID() }))
}

func (k *checker) lanes() {
	seen := map[string]bool{}
	for _, l := range k.Lanes {
		at := "/lanes" + step(l.Name)
		if k.unread(at) {
			continue
		}
		if !laneForm.MatchString(l.Name) {
			k.refuse(at, fmt.Sprintf("%q is not a name for a lane", l.Name), laneHint)
		}
		if seen[l.Name] {
			k.refuse(at, fmt.Sprintf("the lane %q is given twice", l.Name), "keep one")
		}
		seen[l.Name] = true
		if !laneForm.MatchString(l.Provider) {
			k.refuse(at+"/provider", fmt.Sprintf("%q is not a name for a provider", l.Provider), laneHint)
		}
		if l.Concurrency < 1 || l.Concurrency > maxParallel {
			k.refuse(at+"/concurrency", fmt.Sprintf("it must be from 1 to %d", maxParallel), "to stop a lane, pause it")
		}
		if l.Rate < 0 {
			k.refuse(at+"/rate", "it must be above 0", "leave it out for no limit")
		}
		if l.Burst < 1 {
			k.refuse(at+"/burst", "it must be at least 1", "")
		}
	}
}

func (k *checker) operations() {
	seen := map[string]string{}
	for i, o := range k.Operations {
		at := "/operations" + step(i)
		if k.unread(at) {
			continue
		}
		c := &operationChecker{k, o, at}
		c.names()
		if first, again := seen[o.ID()]; again {
			c.refuse("", fmt.Sprintf("%s is given twice: here and on line %d", o.ID(), k.source.line(first)), "a change to its contract is a new version")
		}
		seen[o.ID()] = at
		c.limits()
		c.retention()
		c.people()
		c.inputAndKey()
		c.followOns()
		c.size()
	}
}

// operationChecker checks one operation by itself.
type operationChecker struct {
	k  *checker
	o  Operation
	at string
}

func (c *operationChecker) refuse(path, problem, hint string) {
	c.k.refuse(c.at+path, problem, hint)
}

func (c *operationChecker) names() {
	if !nameForm.MatchString(c.o.Name) {
		c.refuse("/name", fmt.Sprintf("%q is not a name for an operation", c.o.Name), nameHint+"; the version stands apart")
	}
	if c.o.Version < 1 || c.o.Version > 999_999_999 {
		c.refuse("/version", "it must be from 1 to 999999999", "")
	}
	if len(c.o.Description) > maxText {
		c.refuse("/description", fmt.Sprintf("it has more than %d bytes", maxText), "")
	}
	names := make([]string, len(c.k.Lanes))
	if len(names) == 0 && len(c.k.known) > 0 {
		return // the lanes are what could not be read
	}
	for i, l := range c.k.Lanes {
		if names[i] = l.Name; l.Name == c.o.Lane {
			return
		}
	}
	c.refuse("/lane", fmt.Sprintf("there is no lane %q", c.o.Lane), suggest(c.o.Lane, names))
}

func (c *operationChecker) limits() {
	o := c.o
	if o.MaxPayload < 2 || o.MaxPayload > maxPayload {
		c.refuse("/max_payload", fmt.Sprintf("it must be from 2 to %d bytes", maxPayload), "store the document and send its address")
	}
	c.within("/timeouts/call", o.Timeouts.Call, maxCall)
	c.within("/timeouts/reconcile", o.Timeouts.Reconcile, maxReconcile)
	if least := o.Timeouts.Call.Duration + LeaseMargin; o.Timeouts.Lease.Duration < least {
		c.refuse("/timeouts/lease", fmt.Sprintf("the lease of %s ends too early for a call of %s", o.Timeouts.Lease, o.Timeouts.Call),
			fmt.Sprintf("give it at least %s, or a slow call would be declared unknown while it runs", least))
	}
	c.within("/timeouts/lease", o.Timeouts.Lease, maxLease)
	r := o.Retry
	if r.MaxAttempts < 1 || r.MaxAttempts > maxAttempts {
		c.refuse("/retry/max_attempts", fmt.Sprintf("it must be from 1 to %d", maxAttempts), "1 is no retry")
	}
	c.within("/retry/initial", r.Initial, maxDelay)
	c.within("/retry/max", r.Max, maxDelay)
	if r.Max.Duration < r.Initial.Duration {
		c.refuse("/retry/max", fmt.Sprintf("the longest delay, %s, is shorter than the first, %s", r.Max, r.Initial), "")
	}
	if !(r.Multiplier >= 1 && r.Multiplier <= 100) {
		c.refuse("/retry/multiplier", "it must be from 1 to 100", "1 keeps the delay as it is")
	}
	if !(r.Jitter >= 0 && r.Jitter <= 1) {
		c.refuse("/retry/jitter", "it must be from 0 to 1", "0.5 spreads a delay of 10s over 5s to 15s")
	}
}

func (c *operationChecker) within(path string, d Duration, most time.Duration) {
	if d.Duration <= 0 || d.Duration > most {
		c.refuse(path, fmt.Sprintf("it must be longer than 0s and at most %s, not %s", Duration{most}, d), "")
	}
}

func (c *operationChecker) retention() {
	r := c.o.Retention
	c.within("/retention/details", r.Details, maxDuration)
	c.within("/retention/tombstone", r.Tombstone, maxDuration)
	if r.Tombstone.Duration < r.Details.Duration {
		c.refuse("/retention/tombstone", fmt.Sprintf("the tombstone of %s would go before the details, after %s", r.Tombstone, r.Details), "")
	}
	if c.o.Retry.MaxAttempts > maxAttempts {
		return
	}
	if floor := c.o.TombstoneFloor(); r.Tombstone.Duration < floor {
		c.refuse("/retention/tombstone", fmt.Sprintf("after %s a late retry would be a new effect", r.Tombstone),
			fmt.Sprintf("give it at least %s: reconcile, all retries and leases, and the window", Duration{roundUp(floor)}))
	}
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Minute - 1).Truncate(time.Minute)
}

func (c *operationChecker) people() {
	a := c.o.Approval
	if a.People < 1 || a.People > maxPeople {
		c.refuse("/approval/people", fmt.Sprintf("it must be from 1 to %d", maxPeople), "")
	}
	if a.People > 1 && !a.Required {
		c.refuse("/approval/people", "people are asked for, but no approval is required", "say required: true")
	}
	c.within("/approval/expires", a.Expires, maxReconcile)
	if c.o.Review.Owner == "" {
		c.refuse("/review", fmt.Sprintf("nobody owns the reviews of an operation that is %s", c.o.Class), "review: {owner: the rota that decides what nobody can look up}")
	}
}

// size refuses what the database could not store as one canonical document.
func (c *operationChecker) size() {
	if c.o.Input == nil {
		return
	}
	if _, err := c.o.spec(); err != nil {
		// Inside the input it has been reported already.
		if f := notKept(err); !strings.HasPrefix(f.path, "/input") {
			c.refuse(f.path, f.problem, f.hint)
		}
	}
}

// notKept words the refusal of admit for a catalog.
func notKept(err error) fault {
	refused, ok := errors.AsType[*canonical.Error](err)
	if !ok {
		return fault{"", err.Error(), ""}
	}
	switch refused.Code {
	case canonical.NumberNotExact:
		return fault{refused.Path, "the number cannot be kept exactly", "at most 15 significant digits, integers at most 9007199254740991"}
	case canonical.NulCharacter:
		return fault{refused.Path, "the text has the character U+0000", ""}
	default:
		return fault{refused.Path, string(refused.Code), refused.Hint}
	}
}

// admit makes JSON of the catalog canonical, by the rules of payloads.
func admit(text []byte) ([]byte, error) { return canonical.Admit(text, maxSpec) }
