package chaos

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// commitTime is what a server gets to commit before the connection is reset.
const commitTime = 30 * time.Millisecond

// proxy is the network in front of a server: it can be slow, cut, and lose answers.
// What has entered it is delivered even if its sender has gone, as on a real network,
// unless it is cut.
type proxy struct {
	target   atomic.Pointer[string]
	listener net.Listener
	delay    atomic.Int64 // nanoseconds by which each piece is late
	deaf     atomic.Bool  // answers enter and never come out
	commits  atomic.Bool  // the answer to each COMMIT is lost, and the connection with it

	mu    sync.Mutex
	pairs map[*pair]struct{}
}

// pair is one connection through the proxy.
type pair struct {
	client, server net.Conn
	deaf           atomic.Bool // as the proxy's, for this one
}

// reset ends both with an RST: the peers learn nothing of what became of their bytes.
func (p *pair) reset() {
	for _, c := range []net.Conn{p.client, p.server} {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}

func newProxy(ctx context.Context, target string) (*proxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, pairs: map[*pair]struct{}{}}
	p.lead(target)
	go p.serve()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// lead has new connections go to another server.
func (p *proxy) lead(target string) { p.target.Store(&target) }

func (p *proxy) close() error {
	err := p.listener.Close()
	p.cut()
	return err
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // out of descriptors, perhaps
			continue
		}
		go p.connect(client)
	}
}

func (p *proxy) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", *p.target.Load(), time.Second)
	if err != nil {
		(&pair{client: client, server: client}).reset() // the server is down
		return
	}
	c := &pair{client: client, server: server}
	p.mu.Lock()
	p.pairs[c] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { carry(server, client, func(b []byte) bool { return p.forth(c, b) }) })
	both.Go(func() { carry(client, server, func([]byte) bool { return p.back(c) }) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
	_, _ = client.Close(), server.Close()
}

// forth lets a request through, late if need be.
func (p *proxy) forth(c *pair, b []byte) bool {
	time.Sleep(time.Duration(p.delay.Load()))
	if p.commits.Load() && bytes.Contains(b, []byte("commit")) {
		c.deaf.Store(true)
		time.AfterFunc(commitTime, c.reset)
	}
	return true
}

// back tells whether an answer comes through.
func (p *proxy) back(c *pair) bool {
	time.Sleep(time.Duration(p.delay.Load()))
	return !p.deaf.Load() && !c.deaf.Load()
}

// carry brings what passes from one to the other until there is no more.
func carry(to, from net.Conn, passes func([]byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && passes(buf[:n]) {
			if _, werr := to.Write(buf[:n]); werr != nil && err == nil {
				err = werr
			}
		}
		if err != nil {
			if t, ok := to.(*net.TCPConn); ok {
				_ = t.CloseWrite()
			}
			return
		}
	}
}

// cut resets every connection there is. It returns how many.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.reset()
	}
	return len(p.pairs)
}

// slow makes everything late by d, for as long as span.
func (p *proxy) slow(d, span time.Duration) {
	p.delay.Store(int64(d))
	time.Sleep(span)
	p.delay.Store(0)
}

// mute loses answers for as long as span, and then cuts: requests and commits arrive, and
// nobody learns of it.
func (p *proxy) mute(span time.Duration) {
	p.deaf.Store(true)
	time.Sleep(span)
	p.cut()
	p.deaf.Store(false)
}

// loseCommits loses the answer to every COMMIT for as long as span.
func (p *proxy) loseCommits(span time.Duration) {
	p.commits.Store(true)
	time.Sleep(span)
	p.commits.Store(false)
}
