package httpjson

import (
	"errors"
	"net"
	"testing"
)

// sink is a connection that counts what is written to it.
type sink struct {
	net.Conn
	bytes int
	fail  error
}

func (s *sink) Write(b []byte) (int, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	s.bytes += len(b)
	return len(b), nil
}

func TestWhatWasReportedAsNotBegunCannotBeginLater(t *testing.T) {
	t.Parallel()
	a, conn := &attempt{permit: func() error { return nil }}, &sink{}
	g := &gate{Conn: conn}
	a.bind(g)
	if begun, _ := a.end(); begun {
		t.Fatal("begun before anything was written")
	}
	if n, err := g.Write([]byte("POST")); n != 0 || !errors.Is(err, errOver) || conn.bytes != 0 {
		t.Fatalf("wrote %d, %v", n, err)
	}
}

func TestAnAttemptIsOnOneConnectionOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first  *sink
		permit error
		begun  bool
	}{
		"the first took the request": {&sink{}, nil, true},
		"the first took nothing":     {&sink{fail: errors.New("broken pipe")}, nil, false},
		"the permit was denied":      {&sink{}, errors.New("no"), false},
	} {
		asked := 0
		a := &attempt{permit: func() error { asked++; return tt.permit }}
		first, second := &gate{Conn: tt.first}, &gate{Conn: &sink{}}
		a.bind(first)
		_, _ = first.Write([]byte("POST"))
		a.bind(second)
		for _, g := range []*gate{second, second} {
			if n, err := g.Write([]byte("POST")); n != 0 || !errors.Is(err, errSecondRequest) {
				t.Errorf("%s: wrote %d to the second, %v", name, n, err)
			}
		}
		if begun, denied := a.end(); begun != tt.begun || !errors.Is(denied, tt.permit) || asked != 1 {
			t.Errorf("%s: begun %t, denied %v, asked %d times", name, begun, denied, asked)
		}
	}
}

func TestALongRequestIsWrittenToItsEnd(t *testing.T) {
	t.Parallel()
	a, conn := &attempt{permit: func() error { return nil }}, &sink{}
	g := &gate{Conn: conn}
	if _, err := g.Write([]byte("handshake")); err != nil {
		t.Fatal(err)
	}
	a.bind(g)
	for range 3 { // an early answer may end the attempt while its body is still being written
		if _, err := g.Write([]byte("part")); err != nil {
			t.Fatal(err)
		}
		if begun, _ := a.end(); !begun {
			t.Fatal("not begun")
		}
	}
	if conn.bytes != len("handshake")+3*len("part") {
		t.Fatalf("wrote %d bytes", conn.bytes)
	}
}

func TestNothingIsProvenOfAForeignConnection(t *testing.T) {
	t.Parallel()
	a := &attempt{permit: func() error { return nil }}
	a.bind(&sink{})
	if begun, _ := a.end(); !begun {
		t.Fatal("called not begun")
	}
}
