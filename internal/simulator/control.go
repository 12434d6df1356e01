package simulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// control serves what the Go methods do to other processes, under /sim/.
func (s *Server) control(mux *http.ServeMux) {
	mux.HandleFunc("GET /sim/summary", func(w http.ResponseWriter, _ *http.Request) {
		s.reply(w, s.Summary())
	})
	mux.HandleFunc("GET /sim/effects", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		s.reply(w, s.effects(q.Get("service"), q.Get("reference")))
	})
	mux.HandleFunc("GET /sim/count", s.count)
	mux.HandleFunc("GET /sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ledger.mu.Lock()
		list := make([]scripted, len(s.ledger.script))
		for i, f := range s.ledger.script {
			list[i] = *f
		}
		s.ledger.mu.Unlock()
		s.reply(w, list)
	})
	mux.HandleFunc("POST /sim/faults", func(w http.ResponseWriter, r *http.Request) {
		var faults []Fault
		s.act(w, r, &faults, func() error { return s.Script(faults...) })
	})
	mux.HandleFunc("DELETE /sim/faults", func(w http.ResponseWriter, r *http.Request) {
		s.act(w, r, nil, func() error { s.ClearFaults(); return nil })
	})
	mux.HandleFunc("PUT /sim/services/{service}", func(w http.ResponseWriter, r *http.Request) {
		var b Behaviour
		s.act(w, r, &b, func() error { return s.SetBehaviour(r.PathValue("service"), b) })
	})
	mux.HandleFunc("POST /sim/clock", func(w http.ResponseWriter, r *http.Request) {
		var in clockJSON
		s.act(w, r, &in, func() error {
			d, err := parseDuration(in.Advance)
			if err != nil {
				return err
			}
			return s.Advance(d)
		})
	})
	mux.HandleFunc("POST /sim/reset", func(w http.ResponseWriter, r *http.Request) {
		s.act(w, r, nil, s.Reset)
	})
	mux.HandleFunc("POST /sim/http/down", s.httpDown)
	mux.HandleFunc("POST /sim/mail/down", func(w http.ResponseWriter, r *http.Request) {
		s.act(w, r, nil, func() error { s.MailDown(); return nil })
	})
	mux.HandleFunc("POST /sim/mail/up", func(w http.ResponseWriter, r *http.Request) {
		s.act(w, r, nil, func() error { return s.MailUp(r.Context()) })
	})
}

// Counts are the counts of one reference, or of all where none is named.
type Counts struct {
	Effects  int `json:"effects"`
	Requests int `json:"requests"`
	Lookups  int `json:"lookups"`
}

// longPoll is how long a count that waits for effects waits at most.
const longPoll = 10 * time.Second

// count answers the counts of ?service= and ?reference=; with ?effects=N once there are
// that many, or after longPoll.
func (s *Server) count(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	service, reference := q.Get("service"), q.Get("reference")
	if q.Has("effects") {
		want, err := strconv.Atoi(q.Get("effects"))
		if err != nil {
			s.write(w, errorAnswer(http.StatusBadRequest, "bad_request", "effects: want a number"), 0)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), longPoll)
		defer cancel()
		// Too few in time is for the caller to see in the answer.
		_ = s.Await(ctx, func(v Snapshot) bool { return v.Count(service, reference) >= want })
	}
	v := s.snapshot()
	s.reply(w, Counts{v.Count(service, reference), v.Requests(service, reference), v.Lookups(service, reference)})
}

type clockJSON struct {
	Advance string `json:"advance"`
}

type downJSON struct {
	For string `json:"for"`
}

// httpDown takes down the port that it is asked on: when it answers, the port and every
// other connection are closed. It comes back by itself.
func (s *Server) httpDown(w http.ResponseWriter, r *http.Request) {
	var in downJSON
	err := readBody(w, r, &in)
	length, errFor := parseDuration(in.For)
	if err = errors.Join(err, errFor); err == nil && length <= 0 {
		err = errors.New(`want {"for":"5s"}: nobody could ask it to come back`)
	}
	if err != nil {
		s.write(w, errorAnswer(http.StatusBadRequest, "bad_request", err.Error()), 0)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	keep, _ := conn.(*portConn)
	if err := s.web.down(keep); err != nil {
		s.log.Error("http port did not go down in order", "error", err)
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{\"ok\":true}\n")
	_ = conn.Close()
	if s.sleep(length) {
		if err := s.HTTPUp(context.WithoutCancel(r.Context())); err != nil {
			s.log.Error("http port did not come back", "error", err)
		}
	}
}

func (s *Server) reply(w http.ResponseWriter, v any) { s.write(w, jsonAnswer(http.StatusOK, v), 0) }

// act decodes a bounded body strictly into in, if that is not nil, and does something;
// an error is the caller's.
func (s *Server) act(w http.ResponseWriter, r *http.Request, in any, do func() error) {
	if err := readBody(w, r, in); err != nil {
		s.write(w, errorAnswer(http.StatusBadRequest, "bad_request", err.Error()), 0)
		return
	}
	if err := do(); err != nil {
		s.write(w, errorAnswer(http.StatusBadRequest, "bad_request", err.Error()), 0)
		return
	}
	s.reply(w, map[string]bool{"ok": true})
}

func readBody(w http.ResponseWriter, r *http.Request, in any) error {
	data, err := readAll(w, r)
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if in == nil {
		return nil
	}
	return decodeStrict(data, in)
}
