package httpjson

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Provider sends to one account. It implements [providers.Provider] and
// [providers.Looker], and is safe for concurrent use.
type Provider struct {
	config     Config
	operations map[string]*operation
	send       *http.Transport // gated: one request per attempt
	look       *http.Transport // for lookups, which have no effect
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Looker   = (*Provider)(nil)
)

// operation is an Operation with its paths parsed.
type operation struct {
	Operation
	path, lookup []segment
}

// prepared is Request.Data.
type prepared struct {
	operation *operation
	url       string
	lookupURL string // "" without lookup
	body      []byte
	reference string
	payload   map[string]json.RawMessage
}

// New validates the configuration strictly; the error lists every field that is wrong and
// what to do. It does no I/O.
func New(c Config) (*Provider, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("httpjson: %w", err)
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	p := &Provider{config: c, operations: map[string]*operation{}}
	for name, o := range c.Operations {
		op := &operation{Operation: o}
		op.path, _ = parsePath(o.Path)
		if o.Lookup != "" {
			op.lookup, _ = parsePath(o.Lookup)
		}
		p.operations[name] = op
	}
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: c.DialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	p.send, p.look = c.transport(gated(dial)), c.transport(dial)
	return p, nil
}

// transport speaks HTTP/1 only: HTTP/2 replays refused and drained streams by itself, up
// to seven times, below anything that could count or stop it.
func (c Config) transport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		Protocols:              protocols,
		DialContext:            dial,
		TLSHandshakeTimeout:    c.TLSTimeout,
		IdleConnTimeout:        c.IdleTimeout,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    256,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
		t.TLSClientConfig.NextProtos = nil
	}
	if c.Proxy != "" {
		proxy, _ := url.Parse(c.Proxy)
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

// Close closes idle connections. What is under way goes on.
func (p *Provider) Close() error {
	p.send.CloseIdleConnections()
	p.look.CloseIdleConnections()
	return nil
}

// Account implements [providers.Provider].
func (p *Provider) Account() string { return p.config.Account }

// Serves implements [providers.Provider].
func (p *Provider) Serves(name string, version int) (providers.Capabilities, bool) {
	o := p.operation(name, version)
	if o == nil {
		return providers.Capabilities{}, false
	}
	return providers.Capabilities{
		Preset:         p.config.Preset,
		KeyMemory:      o.KeyMemory,
		Replay:         o.Replay,
		Lookup:         o.Lookup != "",
		LookupLag:      o.LookupLag,
		AbsenceIsProof: o.AbsenceIsProof,
	}, true
}

func (p *Provider) operation(name string, version int) *operation {
	if o := p.operations[fmt.Sprintf("%s.v%d", name, version)]; o != nil {
		return o
	}
	return p.operations[name]
}

var referencePattern = regexp.MustCompile(`^[0-9a-v]{32}$`)

// Prepare implements [providers.Provider]. The hash covers the URL, the key header's name,
// the reference and the body; static headers are left out, since credentials rotate.
func (p *Provider) Prepare(in providers.Intent) (providers.Request, error) {
	o := p.operation(in.Operation, in.Version)
	if o == nil {
		return providers.Request{}, &providers.InvalidError{Reason: fmt.Sprintf("operation %s.v%d is not configured for account %s", in.Operation, in.Version, p.config.Account)}
	}
	if !referencePattern.MatchString(in.Reference) {
		return providers.Request{}, &providers.InvalidError{Reason: "the reference is not 32 characters of [0-9a-v]"}
	}
	d := &prepared{operation: o, reference: in.Reference}
	if err := json.Unmarshal(in.Payload, &d.payload); err != nil || d.payload == nil {
		return providers.Request{}, &providers.InvalidError{Reason: "want a JSON object"}
	}
	path, err := render(o.path, d.payload)
	if err != nil {
		return providers.Request{}, err
	}
	d.url = p.config.BaseURL + path
	if o.Lookup != "" {
		lookup, err := render(o.lookup, d.payload)
		if err != nil {
			return providers.Request{}, err
		}
		d.lookupURL = p.config.BaseURL + lookup + "?" + url.Values{o.LookupField: {in.Reference}}.Encode()
	}
	if d.body, err = p.body(in, d.payload); err != nil {
		return providers.Request{}, err
	}
	hash := digest(http.MethodPost, d.url, p.config.KeyHeader, in.Reference, string(d.body))
	return providers.Request{Intent: in, Hash: hash, Data: d}, nil
}

// body is the payload as it came, with the reference as its first member if it travels
// there.
func (p *Provider) body(in providers.Intent, payload map[string]json.RawMessage) ([]byte, error) {
	field := p.config.ReferenceField
	if field == "" {
		return slices.Clone(in.Payload), nil
	}
	if _, taken := payload[field]; taken {
		return nil, &providers.InvalidError{Path: "/" + field, Reason: "is where the reference goes; leave it out"}
	}
	rest := bytes.TrimLeft(in.Payload, " \t\r\n")[1:]
	stamp := fmt.Appendf(nil, `{"%s":"%s"`, field, in.Reference)
	if len(payload) > 0 {
		stamp = append(stamp, ',')
	}
	return append(stamp, rest...), nil
}

// digest hashes parts unambiguously.
func digest(parts ...string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	h.Sum(sum[:0])
	return sum
}
