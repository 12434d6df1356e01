package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// port is a listening address that can go down and come back, and its connections. Both
// servers have one: neither library can stop listening and cut its connections without
// ending for good.
type port struct {
	sim   *Server
	serve func(net.Listener) error // returns when the listener is closed
	addr  string                   // fixed by the first listen

	mu       sync.Mutex
	listener net.Listener // nil while down
	conns    map[*portConn]struct{}
	closed   bool
}

func openPort(ctx context.Context, sim *Server, addr string, serve func(net.Listener) error) (*port, error) {
	p := &port{sim: sim, serve: serve, addr: addr, conns: map[*portConn]struct{}{}}
	return p, p.listen(ctx)
}

func (p *port) listen(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	if p.closed || !p.sim.begin() {
		return net.ErrClosed
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", p.addr)
	if err != nil {
		p.sim.end()
		return err
	}
	p.listener = l
	if got := l.Addr().String(); p.addr != got {
		p.addr = got // once, before anybody can ask: later the port is the same
	}
	go func() {
		defer p.sim.end()
		// It ends because the port went down, which is no news.
		_ = p.serve(&portListener{l, p})
	}()
	return nil
}

// up retries for a while: something else may have borrowed the port for a moment.
func (p *port) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := p.listen(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("simulator: %w", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("simulator: %w", err)
		}
	}
}

// down closes the port and resets its connections but keep; dials are refused from then
// on.
func (p *port) down(keep *portConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.listener != nil {
		err = p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		if c != keep {
			reset(c)
		}
	}
	return err
}

// close is down for good.
func (p *port) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.down(nil)
}

func (p *port) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener == nil
}

// add tracks a connection; nil if the port went down while it was accepted.
func (p *port) add(conn *net.TCPConn, from net.Listener) *portConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != from || !p.sim.begin() {
		return nil
	}
	c := &portConn{TCPConn: conn, port: p}
	p.conns[c] = struct{}{}
	return c
}

type portListener struct {
	net.Listener
	port *port
}

func (l *portListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return nil, errors.Join(errors.New("not a TCP connection"), conn.Close())
		}
		if c := l.port.add(tcp, l.Listener); c != nil {
			return c, nil
		}
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}

// portConn is a connection until its server is done with it, which Close tells.
type portConn struct {
	*net.TCPConn
	port *port
	once sync.Once
}

func (c *portConn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() {
		c.port.mu.Lock()
		delete(c.port.conns, c)
		c.port.mu.Unlock()
		c.port.sim.end()
	})
	return err
}

// reset cuts the connection with RST, so that the client does not take it for an orderly
// end. It stays tracked until its server closes it.
func reset(c *portConn) {
	_ = c.SetLinger(0)
	_ = c.TCPConn.Close()
}
