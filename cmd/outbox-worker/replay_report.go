package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// replaySummary is what a replay of many did, or would do.
type replaySummary struct {
	DryRun  bool           `json:"dry_run"`
	Matched int            `json:"matched"`
	Send    int            `json:"send"`   // exhausted and waiting ones
	Ask     int            `json:"ask"`    // unknown ones
	Follow  int            `json:"follow"` // those whose follow-ons are created again
	Refused int            `json:"refused"`
	Money   []money        `json:"money"` // of those that are sent
	Groups  []*replayGroup `json:"groups"`

	purse purse
}

// replayGroup is all that fails alike and is treated alike.
type replayGroup struct {
	Result     string       `json:"result"` // what is done, or the code of a refusal
	Refused    bool         `json:"refused"`
	State      outbox.State `json:"state"`
	Operation  string       `json:"operation"`
	Failure    string       `json:"failure"`
	Intents    int          `json:"intents"`
	Money      []money      `json:"money"`
	Reason     string       `json:"reason,omitempty"`
	Hint       string       `json:"hint,omitempty"`
	References []string     `json:"references"`

	purse purse
}

// summarise groups what fails alike: first what is done, the largest group first.
func summarise(all []*planned, dry bool) *replaySummary {
	s := &replaySummary{DryRun: dry, Matched: len(all), Groups: []*replayGroup{}}
	groups := map[[4]string]*replayGroup{}
	for _, p := range all {
		result, kind := cmp.Or(p.Did, p.Code), failureKind(p.Failure)
		key := [4]string{result, string(p.State), p.Operation, kind}
		g := groups[key]
		if g == nil {
			g = &replayGroup{
				Result: result, Refused: p.Did == "", State: p.State, Operation: p.Operation, Failure: kind, Reason: p.Reason, Hint: p.Hint,
			}
			groups[key] = g
			s.Groups = append(s.Groups, g)
		}
		g.Intents++
		g.References = append(g.References, p.Reference)
		g.purse.add(p.Amount, p.Currency)
		switch p.Did {
		case "":
			s.Refused++
		case "asked_now":
			s.Ask++
		case "follow_ons_again":
			s.Follow++
		default:
			s.Send++
			s.purse.add(p.Amount, p.Currency)
		}
	}
	for _, g := range s.Groups {
		g.Money = g.purse.list()
	}
	s.Money = s.purse.list()
	slices.SortStableFunc(s.Groups, func(a, b *replayGroup) int {
		if a.Refused != b.Refused {
			return map[bool]int{true: 1, false: -1}[a.Refused]
		}
		return cmp.Or(cmp.Compare(b.Intents, a.Intents), cmp.Compare(a.Result, b.Result), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Failure, b.Failure))
	})
	return s
}

// What makes two failures of one kind look different. A code at the beginning tells the
// kind, whatever it looks like.
var (
	code        = regexp.MustCompile(`^[0-9A-Za-z_-]{1,40}(: |$)`)
	particulars = regexp.MustCompile(`\b[0-9a-v]{32}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[a-z]{2,5}_[A-Za-z]*[0-9][0-9A-Za-z]*\b|[0-9]+([.:][0-9]+)*`)
	quotation   = regexp.MustCompile(`"[^"]*"`)
)

// maxKind is how much of a failure tells its kind, in characters.
const maxKind = 80

// failureKind is a failure without its particulars: references, ids, numbers, quotations.
func failureKind(failure string) string {
	start := code.FindString(failure)
	rest := quotation.ReplaceAllString(failure[len(start):], `"…"`)
	kind := start + particulars.ReplaceAllString(rest, "…")
	if r := []rune(kind); len(r) > maxKind {
		kind = string(r[:maxKind-1]) + "…"
	}
	return kind
}

// examples is how many references of a refused group are shown to people.
const examples = 3

func (s *replaySummary) report(out cli.Output) error {
	if out.JSON {
		return out.Encode(s)
	}
	if s.Matched == 0 {
		return out.Printf("No intents match.")
	}
	table := [][]string{{"RESULT", "STATE", "OPERATION", "LAST FAILURE", "INTENTS", "MONEY"}}
	var refusals []string
	for _, g := range s.Groups {
		result := strings.ReplaceAll(g.Result, "_", " ")
		if g.Refused {
			result = "refused: " + result
			refusals = append(refusals, g.refusal())
		}
		table = append(table, []string{result, string(g.State), g.Operation, g.Failure, strconv.Itoa(g.Intents), g.purse.text()})
	}
	err := errors.Join(out.Table(table), out.Printf(""))
	for _, line := range refusals {
		err = errors.Join(err, out.Printf("%s", line))
	}
	return errors.Join(err, out.Printf("%s", s.total()))
}

func (g *replayGroup) refusal() string {
	named := strings.Join(g.References[:min(examples, len(g.References))], ", ")
	if more := len(g.References) - examples; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("Refused, %s: %s. %s %s", strings.ReplaceAll(g.Result, "_", " "), g.Reason, g.Hint, named)
}

func (s *replaySummary) total() string {
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{
		{s.Send, "to be sent"}, {s.Ask, "to be asked about, not sent"}, {s.Follow, "to have their follow-ons created"}, {s.Refused, "refused"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	text := fmt.Sprintf("%s: %s.", count(s.Matched, "intent"), strings.Join(parts, ", "))
	if s.Send > 0 && len(s.Money) > 0 {
		text += fmt.Sprintf(" At stake in what is sent: %s.", s.purse.sentence())
	}
	if s.DryRun {
		text += " Nothing was changed; --yes does it."
	}
	return text
}
