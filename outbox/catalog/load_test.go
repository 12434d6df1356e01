package catalog_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// What was parsed comes back from jsonb unharmed, numbers in the schema included.
func TestLoadReturnsWhatWasApplied(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	text := strings.Replace(shop, "email: {", "tax: {multipleOf: 0.01, maximum: 1e3, minimum: -9007199254740991, x-small: 1e-7}\n        email: {", 1)
	text = strings.Replace(text, "    money:", "    approval: {required: true, people: 2, expires: 90m}\n    description: <b> & \"ø\"\n    money:", 1)
	c := parse(t, text)
	apply(t, pool, text)
	all, err := catalog.Load(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("%d revisions", len(all))
	}
	for i, r := range all {
		if !reflect.DeepEqual(r.Spec, c.Operations[i]) {
			t.Errorf("\n got: %+v\nwant: %+v", r.Spec, c.Operations[i])
		}
	}
	r := all[0]
	if r.Operation != "charge_card.v1" || r.Revision != 1 || r.Lane != "payments" || r.LaneID == 0 || string(r.Defaults) != `{"currency":"eur"}` || all[1].Defaults != nil {
		t.Errorf("%+v", r)
	}
}

func TestLoadReturnsOldAndRetiredRevisions(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	apply(t, pool, shop)
	old := load(t, pool, "charge_card.v1")
	apply(t, pool, strings.NewReplacer("minimum: 1", "minimum: 50", "    money:", "    retired: true\n    money:").Replace(shop))
	now := load(t, pool, "charge_card.v1")
	if now.Revision != 2 || !now.Spec.Retired {
		t.Errorf("%+v", now)
	}
	again, err := catalog.LoadOne(t.Context(), pool, old.ID)
	if err != nil {
		t.Fatal(err)
	}
	payload := []byte(`{"order_id":"o1","amount":1}`)
	if err := again.CheckInput(payload); err != nil || again.Revision != 1 {
		t.Errorf("an intent keeps the rules it was recorded under: revision %d, %v", again.Revision, err)
	}
	if err := now.CheckInput(payload); err == nil {
		t.Error("the new minimum is not checked")
	}
}

func TestLoadOneFindsNothing(t *testing.T) {
	t.Parallel()
	_, err := catalog.LoadOne(t.Context(), pgtest.DB(t), 4711)
	if !errors.Is(err, pgx.ErrNoRows) || err.Error() != "catalog: revision with id 4711: no rows in result set" {
		t.Error(err)
	}
}

// As if a later version of the program had written it: the other revisions are served
// all the same, so that two versions can run side by side.
func TestLoadNamesWhatItCannotUseAndReturnsTheRest(t *testing.T) {
	t.Parallel()
	for claim, later := range map[string]string{
		"a value it does not know": `jsonb_set(spec, '{input,type}', '"paper"')`,
		"a rule it does not know":  `spec || '{"moon_phase": "full"}'`,
	} {
		pool := pgtest.DB(t)
		apply(t, pool, shop)
		before, err := catalog.Load(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pool.Exec(t.Context(), `SELECT outbox.apply_operation('send_receipt', 1, 'mail', 'operation_id', NULL, false, false, NULL, 65536, NULL, false, false, sha256('x'),
			(SELECT `+later+` FROM outbox.catalog WHERE name = 'send_receipt'), 'eve')`)
		if err != nil {
			t.Fatal(err)
		}
		all, err := catalog.Load(t.Context(), pool)
		var unusable *catalog.UnusableError
		if !errors.As(err, &unusable) || unusable.Operation != "send_receipt.v1" || unusable.Revision != 2 {
			t.Errorf("%s: %v", claim, err)
		}
		if len(all) != len(before) {
			t.Errorf("%s: %d revisions, want the %d others", claim, len(all), len(before))
		}
	}
}
