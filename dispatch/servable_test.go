package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// A worker refuses to start on what could not be kept.
func TestAServiceThatCouldNotKeepItsPromiseIsRefused(t *testing.T) {
	t.Parallel()
	const keys, none = 24 * time.Hour, time.Duration(0)
	for _, c := range []struct {
		what    string
		lease   time.Duration
		memory  time.Duration
		lookup  bool
		unknown catalog.OnUnknown
		why     string // "": it is served
	}{
		{"the provider forgets the key first", time.Minute, 400 * 24 * time.Hour, false, "", ""},
		{"the ledger forgets the key first", time.Minute, 400*24*time.Hour + 1, false, "", "raise retention.tombstone"},
		{"the lease covers call and margin", 10*time.Second + LeaseMargin, keys, false, "", ""},
		{"the lease does not", 10*time.Second + LeaseMargin - 1, keys, false, "", "a lease of"},
		{"it can be asked", time.Minute, none, true, "", ""},
		{"neither key nor lookup, and no choice", time.Minute, none, false, "", "declare unknown"},
		{"neither, and a choice", time.Minute, none, false, catalog.AtMostOnce, ""},
	} {
		r := &catalog.Revision{Operation: "pay.v1"}
		r.Spec.Timeouts.Call.Duration, r.Spec.Timeouts.Lease.Duration, r.Spec.Unknown = 10*time.Second, c.lease, c.unknown
		r.Spec.Retention.Tombstone.Duration = 400 * 24 * time.Hour
		err := Servable(r, &scripted{caps: providers.Capabilities{KeyMemory: c.memory, Lookup: c.lookup}})
		if (err == nil) != (c.why == "") || (err != nil && !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
