package catalog_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func TestApply(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	ch, err := catalog.Apply(t.Context(), pool, parse(t, shop), "ada")
	b, _ := json.Marshal(ch)
	t.Log(string(b), err)
	all, err := catalog.Load(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	r := all[0]
	t.Logf("%s %s %+v", r.Operation, r.Defaults, r.Spec)
	t.Log(r.CheckInput([]byte(`{"order_id":"o1","amount":1}`)), r.CheckInput([]byte(`{"order_id":"o1","amount":0,"email":"x"}`)))
	f, err := r.FollowOns(t.Context(), catalog.Parent{
		Intent:  catalog.ParentIntent{Reference: "r", Tenant: "t", Payload: []byte(`{"email":"a@b.c","amount":9007199254740991}`)},
		Outcome: catalog.ParentOutcome{ProviderID: "ch_1", SettledAt: time.Now()},
	})
	t.Logf("%s %v", f[0].Payload, err)
}
