package httpjson

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"unicode"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Send implements [providers.Provider].
func (p *Provider) Send(ctx context.Context, r providers.Request, permit providers.Permit) providers.Answer {
	d, ok := r.Data.(*prepared)
	if !ok || permit == nil {
		return providers.NotSent("not_prepared", "want a request of this adapter's Prepare, and a permit", 0)
	}
	a := &attempt{permit: func() error { return permit(ctx) }}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { a.bind(info.Conn) },
	})
	// An opaque reader leaves GetBody nil: the body cannot be sent a second time.
	req, err := http.NewRequestWithContext(traced, http.MethodPost, d.url, io.NopCloser(bytes.NewReader(d.body)))
	if err != nil {
		return providers.NotSent("bad_request", "the URL cannot be requested", 0)
	}
	req.ContentLength = int64(len(d.body))
	req.Header.Set("Content-Type", "application/json")
	p.headers(req.Header)
	if p.config.KeyHeader != None {
		req.Header.Set(p.config.KeyHeader, d.reference)
	}
	resp, err := p.send.RoundTrip(req)
	if err != nil {
		return failure(ctx, a, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusMisdirectedRequest {
		// The next try has to use another connection.
		defer p.send.CloseIdleConnections()
	}
	body, complete := readBody(resp.Body, p.config.MaxResponse)
	return classify(d.operation, reply{resp.StatusCode, resp.Header, body, complete})
}

func (p *Provider) headers(h http.Header) {
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "outbox-worker")
	for name, value := range p.config.Headers {
		h.Set(name, value)
	}
}

// failure is a request without an answer. Only the gate knows whether it left.
func failure(ctx context.Context, a *attempt, err error) providers.Answer {
	begun, denied := a.end()
	reason := clean(err)
	switch {
	case denied != nil:
		return providers.NotSent("not_permitted", clean(denied), 0)
	case !begun && ctx.Err() != nil:
		return providers.NotSent("timeout", "time ran out before anything was written: "+reason, 0)
	case !begun:
		return providers.NotSent("not_connected", "nothing was written: "+reason, 0)
	case ctx.Err() != nil:
		return providers.Unknown("timeout", "no answer in time: "+reason)
	}
	return providers.Unknown("connection_lost", "no answer: "+reason)
}

// readBody reads up to limit bytes; complete is false if there was more or if it broke off.
func readBody(r io.Reader, limit int64) (body []byte, complete bool) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(body)) > limit {
		return body[:limit], false
	}
	return body, err == nil
}

// clean makes one short printable line of an error; a server may have had a hand in it.
func clean(err error) string {
	const tooLong = 200
	s := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(err.Error(), " "))
	if len(s) > tooLong {
		s = strings.ToValidUTF8(s[:tooLong], "") + "..."
	}
	return s
}

// httpCode names an answer whose body does not.
func httpCode(status int) string { return fmt.Sprintf("http_%d", status) }
