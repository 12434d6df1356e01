package smtp

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Provider sends mail from one account. It implements [providers.Provider], and is safe
// for concurrent use.
type Provider struct{ settings }

var _ providers.Provider = (*Provider)(nil)

// New validates the configuration strictly; the error lists every field that is wrong and
// what to do. It does no I/O.
func New(c Config) (*Provider, error) {
	s, err := c.parse()
	if err != nil {
		return nil, fmt.Errorf("smtp: %w", err)
	}
	if s.Dial == nil {
		s.Dial = (&net.Dialer{Timeout: s.DialTimeout}).DialContext
	}
	return &Provider{s}, nil
}

// Account implements [providers.Provider].
func (p *Provider) Account() string { return p.settings.Account }

// Serves implements [providers.Provider]. Nothing is promised: SMTP knows no keys and has
// no lookup, so the catalog has to choose at-most-once or at-least-once.
func (p *Provider) Serves(operation string, version int) (providers.Capabilities, bool) {
	if !slices.Contains(p.Operations, operation) && !slices.Contains(p.Operations, fmt.Sprintf("%s.v%d", operation, version)) {
		return providers.Capabilities{}, false
	}
	return providers.Capabilities{Preset: p.Preset}, true
}

// Prepare implements [providers.Provider]. The hash covers envelope, headers and body, but
// not the Date, which is the time of sending.
func (p *Provider) Prepare(in providers.Intent) (providers.Request, error) {
	if _, ok := p.Serves(in.Operation, in.Version); !ok {
		return providers.Request{}, &providers.InvalidError{Reason: fmt.Sprintf("operation %s.v%d is not configured for account %s", in.Operation, in.Version, p.Account())}
	}
	if !referencePattern.MatchString(in.Reference) {
		return providers.Request{}, &providers.InvalidError{Reason: "the reference is not 32 characters of [0-9a-v]"}
	}
	content, err := parsePayload(in.Payload)
	if err != nil {
		return providers.Request{}, err
	}
	m := p.render(in, content)
	return providers.Request{Intent: in, Hash: m.hash(), Data: m}, nil
}

func (m *message) hash() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(m.from.String()), []byte(m.to.String()), m.header, m.body} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}
