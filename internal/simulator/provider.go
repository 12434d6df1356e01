package simulator

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody     = 1 << 20
	maxKey      = 255
	bodyTimeout = time.Minute
	decoyPath   = "/moved"
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for service := range idPrefixes {
		if service == Mail {
			continue
		}
		mux.HandleFunc("POST /v1/"+service, func(w http.ResponseWriter, r *http.Request) { s.create(w, r, service) })
		mux.HandleFunc("GET /v1/"+service, func(w http.ResponseWriter, r *http.Request) { s.find(w, r, service) })
		mux.HandleFunc("GET /v1/"+service+"/{id}", func(w http.ResponseWriter, r *http.Request) { s.get(w, r, service) })
	}
	mux.HandleFunc(decoyPath, s.decoy)
	s.control(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			abort(w)
			return
		}
		defer s.end()
		mux.ServeHTTP(w, r)
	})
}

// create takes a request through arrive, gate, key, execute and answer; see the package
// comment.
func (s *Server) create(w http.ResponseWriter, r *http.Request, service string) {
	c, problem := s.readCreate(w, r, service)
	if problem != nil {
		s.ledger.countRejected(c.target)
		s.write(w, *problem, 0)
		return
	}
	p := s.ledger.arrive(c.target, c.digest, nil)
	s.log.Debug("request", "service", service, "reference", c.target.reference, "request", p.request, "fault", p.kind())
	if !s.sleep(p.delay) {
		s.ledger.abandon(p)
		abort(w)
		return
	}
	if p.gated() {
		s.gate(w, p)
		return
	}
	switch p.verdict {
	case keyChanged:
		s.write(w, errorAnswer(http.StatusUnprocessableEntity, "idempotency_key_reused", "this key was used with another body"), p.slow)
	case keyRunning:
		s.write(w, keyInUse(), p.slow)
	case keySaved:
		p.saved.headers = append(slices.Clone(p.saved.headers), [2]string{"Idempotent-Replayed", "true"})
		s.transmit(w, r, p, p.saved)
	case keyFresh:
		a, ok := s.execute(p, Effect{Fields: c.fields})
		if !ok {
			abort(w)
			return
		}
		s.transmit(w, r, p, a)
	}
}

type createRequest struct {
	target target
	digest [sha256.Size]byte
	fields map[string]any
}

// readCreate reads a bounded body and finds the reference; a problem is the answer to a
// request that no provider would begin to execute.
func (s *Server) readCreate(w http.ResponseWriter, r *http.Request, service string) (createRequest, *answer) {
	key := r.Header.Get("Idempotency-Key")
	c := createRequest{target: target{service, key}}
	bad := func(status int, code, message string) (createRequest, *answer) {
		a := errorAnswer(status, code, message)
		return c, &a
	}
	if len(key) > maxKey {
		c.target.reference = ""
		return bad(http.StatusBadRequest, "idempotency_key_too_long", "a key has at most 255 characters")
	}
	body, err := readAll(w, r)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return bad(http.StatusRequestEntityTooLarge, "body_too_large", "a body has at most 1 MiB")
	}
	if err != nil {
		return bad(http.StatusBadRequest, "body_unreadable", err.Error())
	}
	c.digest = sha256.Sum256(body)
	if err := decodeStrict(body, &c.fields); err != nil || c.fields == nil {
		return bad(http.StatusBadRequest, "invalid_json", "want one JSON object")
	}
	if s.ledger.ignoresKeys(service) && key == "" {
		c.target.reference, _ = c.fields["reference"].(string)
		if c.target.reference == "" || len(c.target.reference) > maxKey {
			return bad(http.StatusBadRequest, "reference_missing", "want the member reference, a string of at most 255 characters")
		}
	}
	if c.target.reference == "" {
		return bad(http.StatusBadRequest, "idempotency_key_missing", "want the header Idempotency-Key")
	}
	amount, given := c.fields["amount"]
	if (given || service == Charges) && !minorUnits(amount) {
		return bad(http.StatusBadRequest, "amount_invalid", "want amount, a positive integer of minor units")
	}
	return c, nil
}

// readAll bounds a body in size and time. Afterwards the connection has no deadline: a
// lost answer may last as long as the client does.
func readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		_ = c.SetReadDeadline(time.Time{})
	}
	return body, err
}

func minorUnits(v any) bool {
	n, ok := v.(json.Number)
	if !ok {
		return false
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	return err == nil && i > 0
}

func (l *ledger) ignoresKeys(service string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.behaviours[service].Keys == Ignore
}

// execute has the effect or the refusal, between two points where tests can hold it. It
// does not look at the client: a request that has come so far is carried out. ok is
// false if the server closed before.
func (s *Server) execute(p plan, e Effect) (a answer, ok bool) {
	if !s.ledger.wait(p.target, BeforeEffect, s.closing) {
		s.ledger.abandon(p)
		return answer{}, false
	}
	if p.kind() == Refuse {
		a = p.fault.refusal()
		s.ledger.refuse(p, a)
		return a, true
	}
	_, a = s.ledger.record(p, e)
	return a, s.ledger.wait(p.target, AfterEffect, s.closing)
}

// gate answers, or cuts, without a trace of the key.
func (s *Server) gate(w http.ResponseWriter, p plan) {
	if a, ok := p.fault.gateAnswer(); ok {
		s.write(w, a, p.slow)
		return
	}
	abort(w)
}

// transmit sends a, unless a fault has it otherwise. By now everything is recorded.
func (s *Server) transmit(w http.ResponseWriter, r *http.Request, p plan, a answer) {
	switch p.kind() {
	case ResetAfter:
		abort(w)
	case Lost:
		select {
		case <-r.Context().Done():
		case <-s.closing:
		}
		abort(w)
	case Truncated:
		writeHead(w, a)
		_, _ = w.Write(a.body[:len(a.body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case Garbage:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body>It works!</body></html>\n")
	case ErrorAfter:
		s.write(w, p.fault.errorAfterAnswer(), p.slow)
	default:
		s.write(w, a, p.slow)
	}
}

// write sends a, its body in pieces over slow. Who has left misses it.
func (s *Server) write(w http.ResponseWriter, a answer, slow time.Duration) {
	writeHead(w, a)
	if slow <= 0 {
		_, _ = w.Write(a.body)
		return
	}
	const pieces = 8
	rest, size := a.body, max(len(a.body)/pieces, 1)
	for len(rest) > 0 {
		_ = http.NewResponseController(w).Flush()
		if !s.sleep(slow / pieces) {
			panic(http.ErrAbortHandler)
		}
		n := min(size, len(rest))
		if len(rest) < 2*size {
			n = len(rest)
		}
		_, _ = w.Write(rest[:n])
		rest = rest[n:]
	}
}

func writeHead(w http.ResponseWriter, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	for _, h := range a.headers {
		w.Header().Set(h[0], h[1])
	}
	w.WriteHeader(a.status)
}

// abort resets the connection: the client sees RST, not an orderly end.
func abort(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if c, ok := conn.(*portConn); ok {
		reset(c)
	}
	_ = conn.Close()
}

// find answers GET ?reference= with the effects that its lag lets it see.
func (s *Server) find(w http.ResponseWriter, r *http.Request, service string) {
	reference := r.URL.Query().Get("reference")
	if reference == "" || len(reference) > maxKey {
		s.write(w, errorAnswer(http.StatusBadRequest, "reference_missing", "want ?reference="), 0)
		return
	}
	p, found := s.ledger.lookup(target{service, reference})
	data := make([]map[string]any, len(found))
	for i, e := range found {
		data[i] = e.resource()
	}
	s.answerLookup(w, r, p, jsonAnswer(http.StatusOK, map[string]any{"data": data, "has_more": false}))
}

// get answers GET /{id}; ids are visible at once.
func (s *Server) get(w http.ResponseWriter, r *http.Request, service string) {
	p, found := s.ledger.lookupID(service, r.PathValue("id"))
	a := errorAnswer(http.StatusNotFound, "not_found", "no such id")
	if len(found) > 0 {
		a = jsonAnswer(http.StatusOK, found[0].resource())
	}
	s.answerLookup(w, r, p, a)
}

func (s *Server) answerLookup(w http.ResponseWriter, r *http.Request, p plan, a answer) {
	if !s.sleep(p.delay) {
		abort(w)
		return
	}
	if p.gated() {
		s.gate(w, p)
		return
	}
	s.transmit(w, r, p, a)
}

// decoy is where Redirect leads: it looks like success, and nothing has happened.
func (s *Server) decoy(w http.ResponseWriter, _ *http.Request) {
	s.ledger.mu.Lock()
	s.ledger.decoys++
	s.ledger.touch()
	s.ledger.mu.Unlock()
	s.write(w, jsonAnswer(http.StatusOK, map[string]any{"id": "decoy", "status": "succeeded"}), 0)
}

func foldAddress(address string) string { return strings.ToLower(address) }
