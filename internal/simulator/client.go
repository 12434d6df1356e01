package simulator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Client controls a simulator in another process.
type Client struct {
	base string
	http *http.Client
}

// NewClient controls the simulator at base, its HTTPURL.
func NewClient(base string) *Client {
	return &Client{base: base, http: &http.Client{Timeout: 30 * time.Second}}
}

// Summary is everything counted.
func (c *Client) Summary(ctx context.Context) (Summary, error) {
	var s Summary
	err := c.call(ctx, http.MethodGet, "/sim/summary", nil, &s)
	return s, err
}

// Effects in the order in which they happened; an empty service or reference means all.
func (c *Client) Effects(ctx context.Context, service, reference string) ([]Effect, error) {
	q := url.Values{"service": {service}, "reference": {reference}}
	var e []Effect
	err := c.call(ctx, http.MethodGet, "/sim/effects?"+q.Encode(), nil, &e)
	return e, err
}

// Count reads the counts of a reference; an empty service or reference means all.
func (c *Client) Count(ctx context.Context, service, reference string) (Counts, error) {
	return c.count(ctx, url.Values{"service": {service}, "reference": {reference}})
}

// AwaitEffects blocks until there are at least n effects.
func (c *Client) AwaitEffects(ctx context.Context, service, reference string, n int) (Counts, error) {
	q := url.Values{"service": {service}, "reference": {reference}, "effects": {strconv.Itoa(n)}}
	for {
		counts, err := c.count(ctx, q)
		if err != nil || counts.Effects >= n {
			return counts, err
		}
	}
}

func (c *Client) count(ctx context.Context, q url.Values) (Counts, error) {
	var n Counts
	err := c.call(ctx, http.MethodGet, "/sim/count?"+q.Encode(), nil, &n)
	return n, err
}

// Script adds faults; see Server.Script.
func (c *Client) Script(ctx context.Context, faults ...Fault) error {
	return c.call(ctx, http.MethodPost, "/sim/faults", append([]Fault{}, faults...), nil)
}

// ClearFaults ends the script.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/sim/faults", nil, nil)
}

// SetBehaviour changes how a service treats requests from now on.
func (c *Client) SetBehaviour(ctx context.Context, service string, b Behaviour) error {
	return c.call(ctx, http.MethodPut, "/sim/services/"+url.PathEscape(service), b, nil)
}

// Advance moves the simulator's clock forward.
func (c *Client) Advance(ctx context.Context, d time.Duration) error {
	return c.call(ctx, http.MethodPost, "/sim/clock", clockJSON{d.String()}, nil)
}

// Reset empties the ledger; see Server.Reset.
func (c *Client) Reset(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/sim/reset", nil, nil)
}

// HTTPDown makes the HTTP providers, and the control interface, refuse connections for d.
func (c *Client) HTTPDown(ctx context.Context, d time.Duration) error {
	return c.call(ctx, http.MethodPost, "/sim/http/down", downJSON{d.String()}, nil)
}

// MailDown makes the mail server refuse connections.
func (c *Client) MailDown(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/sim/mail/down", nil, nil)
}

// MailUp undoes MailDown, on the same port.
func (c *Client) MailUp(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/sim/mail/up", nil, nil)
}

// call sends in and decodes the answer into out, either of which may be nil. An answer
// other than 200 is an error with the simulator's own words.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var e errorBody
		_ = json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&e)
		return fmt.Errorf("simulator: %s %s: %s: %s", method, path, resp.Status, e.Error.Message)
	}
	if out == nil {
		return nil
	}
	dec := json.NewDecoder(resp.Body)
	dec.UseNumber()
	return dec.Decode(out)
}
