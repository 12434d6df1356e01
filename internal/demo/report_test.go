package demo

import (
	"encoding/json"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
)

func effect(service, reference, order string) simulator.Effect {
	return simulator.Effect{Service: service, Reference: reference, Fields: map[string]any{"storefront": "fjord", "order_id": order}}
}

// The demo's verdict is worth something only if it can be the other one.
func TestTheJudgeFindsWhatIsPlanted(t *testing.T) {
	for _, test := range []struct {
		claim            string
		standing         standing
		effects          []simulator.Effect
		duplicates, lost int
	}{
		{"a success with its effect", standing{state: "succeeded"}, []simulator.Effect{effect("charges", "r", "1")}, 0, 0},
		{"a success with two effects", standing{state: "succeeded"}, []simulator.Effect{effect("charges", "r", "1"), effect("charges", "r", "1")}, 1, 0},
		{"an order charged under two references", standing{state: "succeeded"}, []simulator.Effect{effect("charges", "r", "1"), effect("charges", "q", "1")}, 1, 1},
		{"a success without an effect", standing{state: "succeeded"}, nil, 0, 1},
		{"a refusal", standing{state: "failed_final"}, nil, 0, 0},
		{"a refusal with an effect", standing{state: "failed_final"}, []simulator.Effect{effect("charges", "r", "1")}, 0, 1},
		{"exhausted with an effect", standing{state: "exhausted", reason: "down"}, []simulator.Effect{effect("charges", "r", "1")}, 0, 1},
		{"unknown, and says why", standing{state: "outcome_unknown", reason: "timeout"}, []simulator.Effect{effect("charges", "r", "1")}, 0, 0},
		{"unknown without a reason", standing{state: "outcome_unknown"}, nil, 0, 1},
		{"in review, and says why", standing{state: "needs_review", reason: "timeout"}, nil, 0, 0},
		{"still executing", standing{state: "executing", phase: "leased"}, nil, 0, 1},
		{"never sent", standing{state: "accepted", phase: "due"}, nil, 0, 1},
		{"a success without its follow-ons", standing{state: "succeeded", missing: 1}, []simulator.Effect{effect("charges", "r", "1")}, 0, 1},
		{"a success whose follow-on is in review", standing{state: "succeeded", missing: 1, phase: "parked", reason: "no address"}, []simulator.Effect{effect("charges", "r", "1")}, 0, 0},
	} {
		var r Report
		test.standing.reference, test.standing.operation = "r", "charge_card.v1"
		r.judge([]standing{test.standing}, test.effects)
		if r.Duplicates != test.duplicates || r.Lost != test.lost || r.OK() != (test.duplicates+test.lost == 0) {
			t.Errorf("%s: %d duplicates, %d lost, want %d, %d: %v", test.claim, r.Duplicates, r.Lost, test.duplicates, test.lost, r.problems)
		}
	}
}

func TestTheVerdictIsOneObject(t *testing.T) {
	text, err := json.Marshal(Report{Intents: 3, Effects: 2, Lost: 1, Faults: map[simulator.Kind]int{simulator.Lost: 1}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"orders":0,"repeats":0,"conflicts":0,"intents":3,"effects":2,"charges":0,"shipments":0,"mails":0,"duplicates":0,"lost":1,` +
		`"succeeded":0,"refused":0,"exhausted":0,"unknown":0,"review":0,"faults":{"lost":1},"killed":0,"seconds":0}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
