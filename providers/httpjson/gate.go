package httpjson

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

var (
	errSecondRequest = errors.New("a request is sent once, on one connection")
	errOver          = errors.New("this attempt is over")
)

// attempt is the right of one Send to write one request. It is what decides whether
// anything may have left: not net/http's error, which does not tell.
type attempt struct {
	permit func() error

	mu      sync.Mutex
	carrier *gate // the connection that the request is on, once begun
	begun   bool  // bytes may have left
	over    bool  // nothing may begin any more
	denied  error // what permit said
}

// enter is asked before every write. The first asks for the permit. The lock makes it
// final: what end has reported as not begun can never begin afterwards.
func (a *attempt) enter(g *gate) (first bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.begun && a.carrier == g:
		return false, nil
	case a.carrier != nil, a.denied != nil:
		return false, errSecondRequest
	case a.over:
		return false, errOver
	}
	a.carrier = g
	if a.denied = a.permit(); a.denied != nil {
		return false, a.denied
	}
	a.begun = true
	return true, nil
}

// retract notes that the first write took no byte.
func (a *attempt) retract() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun = false
}

// end closes the attempt and tells whether anything may have left, and whether the permit
// was denied.
func (a *attempt) end() (begun bool, denied error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	return a.begun, a.denied
}

// bind puts the attempt in charge of a connection that net/http has chosen for it, new or
// reused, after dialling and handshakes.
func (a *attempt) bind(conn net.Conn) {
	for {
		switch c := conn.(type) {
		case *gate:
			c.attempt.Store(a)
			return
		case interface{ NetConn() net.Conn }: // TLS, also within TLS
			conn = c.NetConn()
		default:
			// Not one of ours: nothing can be proven about it.
			a.mu.Lock()
			a.begun = true
			a.mu.Unlock()
			return
		}
	}
}

// gate is the connection below everything, TLS included. Until an attempt is bound to it
// it passes handshakes; then only what the attempt allows.
type gate struct {
	net.Conn
	attempt atomic.Pointer[attempt]
}

// Write counts a failed first write as nothing written if the kernel took no byte: that
// is what an already reset connection looks like.
func (g *gate) Write(b []byte) (int, error) {
	a := g.attempt.Load()
	if a == nil {
		return g.Conn.Write(b)
	}
	first, err := a.enter(g)
	if err != nil {
		return 0, err
	}
	n, err := g.Conn.Write(b)
	if first && n == 0 && err != nil {
		a.retract()
	}
	return n, err
}

// gated wraps every connection that dial makes.
func gated(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &gate{Conn: conn}, nil
	}
}
