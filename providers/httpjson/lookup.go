package httpjson

import (
	"context"
	"net/http"
	"strings"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Lookup implements [providers.Looker]. Absent is said only of a whole list that shows
// nothing: a list with other people's effects means that the provider ignored the filter,
// and then nothing was looked up.
func (p *Provider) Lookup(ctx context.Context, r providers.Request) providers.Finding {
	d, ok := r.Data.(*prepared)
	if !ok || d.lookupURL == "" {
		return notLooked("no_lookup", "this operation has no lookup")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.lookupURL, nil)
	if err != nil {
		return notLooked("bad_request", "the URL cannot be requested")
	}
	p.headers(req.Header)
	resp, err := p.look.RoundTrip(req)
	if err != nil {
		return notLooked("no_answer", clean(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return notLooked(httpCode(resp.StatusCode), reason(resp.StatusCode, nil))
	}
	body, complete := readBody(resp.Body, p.config.MaxResponse)
	content, isJSON := decode(body)
	if !complete || !isJSON {
		return notLooked("unreadable", "the list is not whole JSON")
	}
	return find(d, content)
}

func notLooked(code, reason string) providers.Finding {
	return providers.Finding{Kind: providers.NotLooked, Code: code, Reason: reason}
}

// find judges a list of effects.
func find(d *prepared, content any) providers.Finding {
	list, ok := at(content, "data").([]any)
	if !ok {
		return notLooked("unreadable", "want a member data with the list of effects")
	}
	var ours []any
	for _, item := range list {
		if at(item, d.operation.LookupField) == any(d.reference) {
			ours = append(ours, item)
		}
	}
	more, _ := at(content, "has_more").(bool)
	switch {
	case len(ours) > 1:
		return providers.Finding{Kind: providers.Differs, Code: "several", Reason: "more than one effect has our reference"}
	case len(ours) == 1:
		return compare(d, ours[0])
	case len(list) > 0:
		return notLooked("filter_ignored", "the list has effects, but none with our reference in "+d.operation.LookupField)
	case more:
		return notLooked("has_more", "the list is empty and says that there is more")
	}
	return providers.Finding{Kind: providers.Absent}
}

// compare tells whether an effect with our reference is what we asked for, and how it
// ended.
func compare(d *prepared, item any) providers.Finding {
	o := d.operation
	for _, field := range o.Compare {
		raw, asked := d.payload[field]
		if !asked {
			continue
		}
		want, _ := decode(raw)
		shown, _ := item.(map[string]any)
		got, isShown := shown[field]
		if !isShown {
			return notLooked("not_comparable", "the effect found does not show "+field)
		}
		if !sameValue(want, got) {
			return providers.Finding{Kind: providers.Differs, Code: "differs", Reason: "the effect found has another " + field}
		}
	}
	listed := *o
	listed.IDField, listed.StatusField = leaf(o.IDField), leaf(o.StatusField)
	answer := accept(&listed, providers.Answer{Kind: providers.KindAccepted, Reason: "found by reference"}, item, true)
	if answer.Kind == providers.KindUnknown {
		return notLooked(answer.Code, answer.Reason)
	}
	answer.Result = keepValue(item)
	return providers.Finding{Kind: providers.Found, Answer: answer}
}

// leaf is the member's name in a list, where the envelope of a single answer is missing.
func leaf(field string) string { return field[strings.LastIndexByte(field, '/')+1:] }
