package outbox_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

func TestARolledBackTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b *testBundle, w way) {
		if !w.transactions {
			t.Skip("commits each call by itself")
		}
		old := b.accept(charge("old", 1))
		before := b.rows()
		d := w.begin(b)
		for _, in := range []outbox.Intent{charge("1", 1), charge("old", 1), charge("old", 2), search("rain")} {
			_, err := d.enqueue(in)
			b.must(err)
		}
		b.must(d.rollback())
		b.wantRows(before)
		if got := b.repeats(old); got != "" {
			t.Errorf("repeats: %s", got)
		}
	})
}

func TestARolledBackSavepointLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin()
	b.enqueueIn(tx, charge("kept", 1))
	savepoint, err := tx.Begin(b.ctx)
	b.must(err)
	b.enqueueIn(savepoint, charge("undone", 1))
	b.enqueueIn(savepoint, charge("kept", 1))
	b.enqueueIn(savepoint, search("undone"))
	b.must(savepoint.Rollback(b.ctx))
	if a := b.enqueueIn(tx, charge("undone", 2)); a.Kind != outbox.AnswerAccepted {
		t.Errorf("what was undone still counts: %+v", a)
	}
	b.must(tx.Commit(b.ctx))
	b.wantRows(rows{intents: 2, open: 2})
}

// A statement of the application's that fails takes everything with it.
func TestAFailedTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := b.begin()
	b.enqueueIn(tx, charge("1", 1))
	if _, err := tx.Exec(b.ctx, "SELECT 1/0"); err == nil {
		t.Error("no error")
	}
	if err := tx.Commit(b.ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("commit: %v", err)
	}
	b.wantRows(rows{})
}

// A commit whose answer is lost leaves the application in the dark. It asks again with
// the same intent, and gets the truth in either case.
func TestACommitWhoseAnswerWasLostCanBeAskedAgain(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		claim string
		cut   moment
		want  outbox.AnswerKind
		rows  rows
	}{
		{"lost on the way there, so it was rolled back", beforeServer, outbox.AnswerAccepted, rows{intents: 1, open: 1}},
		{"lost on the way back, so it was committed", afterServer, outbox.AnswerInFlight, rows{intents: 1, open: 1, repeats: 1}},
	} {
		t.Run(x.claim, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy := startProxy(b)
			conn := proxy.connect()
			tx, err := conn.Begin(b.ctx)
			b.must(err)
			lost := b.enqueueIn(tx, charge("1", 1))
			proxy.cutAt(x.cut, isCommit)
			if err := tx.Commit(b.ctx); err == nil {
				t.Error("the commit was answered")
			}
			// By default the door waits for a transaction that the server has not given up yet.
			again := b.enqueue(charge("1", 1))
			if again.Kind != x.want || again.Reference != lost.Reference {
				t.Errorf("asked again: %+v, want %s %s", again, x.want, lost.Reference)
			}
			b.wantRows(x.rows)
		})
	}
}

// The same holds where the call commits by itself, through a pool.
func TestACallWhoseAnswerWasLostCanBeAskedAgain(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		claim string
		cut   moment
		want  outbox.AnswerKind
	}{
		{"lost on the way there", beforeServer, outbox.AnswerAccepted},
		{"lost on the way back", afterServer, outbox.AnswerInFlight},
	} {
		t.Run(x.claim, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy := startProxy(b)
			conn := proxy.connect()
			proxy.cutAt(x.cut, isExecute)
			if a, err := outbox.Enqueue(b.ctx, conn, charge("1", 1)); err == nil || a.Kind != "" {
				t.Errorf("it was answered: %+v %v", a, err)
			}
			if a := b.enqueue(charge("1", 1)); a.Kind != x.want {
				t.Errorf("asked again: %+v, want %s", a, x.want)
			}
			if n := b.rows(); n.intents != 1 || n.open != 1 {
				t.Errorf("rows: %+v", n)
			}
		})
	}
}

// A caller that gives up waiting for another's key has recorded nothing.
func TestACancelledCallLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.begin()
	b.enqueueIn(holder, charge("1", 1))
	ctx, cancel := context.WithCancel(b.ctx)
	waited := make(chan error)
	go func() {
		_, err := outbox.Enqueue(ctx, b.app, charge("1", 1))
		waited <- err
	}()
	b.awaitBlocked(1)
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("err: %v", err)
	}
	// Before the key comes free: a server that has not heard yet would take it.
	b.awaitBlocked(0)
	b.must(holder.Rollback(b.ctx))
	b.await("the server has given it up", func() bool {
		return query[int](b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'") == 1
	})
	b.wantRows(rows{})
}

// moment is when the connection is lost, as seen from a message to the server.
type moment int

const (
	beforeServer moment = iota // the server never gets it
	afterServer                // the server has done it, and its answer is lost
)

// Messages of the protocol, as far as the proxy knows them.
func isCommit(kind byte, body []byte) bool { return kind == 'Q' && string(body) == "commit\x00" }
func isExecute(kind byte, _ []byte) bool   { return kind == 'E' }

// proxy stands between an application and the server, and loses the connection when
// told to.
type proxy struct {
	b        *testBundle
	server   string
	listener net.Listener

	mu      sync.Mutex
	moment  moment
	message func(kind byte, body []byte) bool
}

func startProxy(b *testBundle) *proxy {
	b.t.Helper()
	u, err := url.Parse(b.url)
	b.must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	p := &proxy{b: b, server: u.Host, listener: listener}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(client) })
		}
	})
	b.t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return p
}

// cutAt loses the connection at the next message to the server that is meant.
func (p *proxy) cutAt(m moment, message func(kind byte, body []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moment, p.message = m, message
}

func (p *proxy) meant(kind byte, body []byte) (m moment, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moment, p.message != nil && p.message(kind, body)
}

// connect returns a connection through the proxy, as an application's.
func (p *proxy) connect() *pgx.Conn {
	p.b.t.Helper()
	u, err := url.Parse(p.b.url)
	p.b.must(err)
	u.Host = p.listener.Addr().String()
	config, err := pgxpool.ParseConfig(u.String())
	p.b.must(err)
	asApp(config)
	conn, err := pgx.ConnectConfig(p.b.ctx, config.ConnConfig)
	p.b.must(err)
	p.b.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(p.b.ctx)) }) // most are lost
	return conn
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()

	// answers carries the server's bytes to the client, until they are to be lost: then
	// it reads on until the server is ready for the next query, which it is only after
	// it has committed.
	lose, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		for {
			message, err := readMessage(server, true)
			if err != nil {
				return
			}
			select {
			case <-lose:
				if message[0] == 'Z' {
					return
				}
			default:
				if _, err := client.Write(message); err != nil {
					return
				}
			}
		}
	}()
	started := false
	for {
		message, err := readMessage(client, started)
		if err != nil {
			break
		}
		if started {
			if m, ok := p.meant(message[0], message[5:]); ok {
				if m == beforeServer {
					break
				}
				close(lose)
				p.cutAt(m, nil)
			}
		}
		started = true
		if _, err := server.Write(message); err != nil {
			break
		}
	}
	select {
	case <-lose: // the client closes because it was cut off, which done says
		<-done
	default:
		server.Close()
		<-done
	}
}

// readMessage reads one message: a byte that says which, unless it is the first, and a
// length that counts itself.
func readMessage(r io.Reader, typed bool) ([]byte, error) {
	header := make([]byte, 5)
	if !typed {
		header = header[:4]
	}
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[len(header)-4:])
	message := append(header, make([]byte, length-4)...)
	_, err := io.ReadFull(r, message[len(header):])
	return message, err
}
