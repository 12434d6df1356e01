package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/examples/shop"
	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// start runs the shop until stop is called, which returns run's error.
func start(t *testing.T, url string) (base string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0", "-database-url", url}, in)
		_ = in.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		var line struct{ URL string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		base = line.URL
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return base, func() error {
		cancel()
		return <-done
	}
}

func TestServesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	base, stop := start(t, url)
	if base == "" {
		t.Fatal(stop())
	}
	parsed, err := catalog.Parse("catalog.yaml", shop.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	db, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := catalog.Apply(t.Context(), db, parsed, "test"); err != nil {
		t.Fatal(err)
	}

	// Stopping lets a request that has begun be answered. The client sends its body when
	// the shop has said 100 Continue, so then it has begun.
	client := http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	body, feed := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/orders", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	answered := make(chan int, 1)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			_ = feed.CloseWithError(err)
			answered <- 0
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	first, _, _ := bytes.Cut(shop.Orders, []byte("\n"))
	if _, err := feed.Write(first[:20]); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	if _, err := feed.Write(first[20:]); err != nil {
		t.Fatal(err)
	}
	_ = feed.Close()
	if status := <-answered; status != http.StatusCreated {
		t.Errorf("the order in flight was answered %d", status)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestSaysWhatIsMissing(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"no database", "", "DATABASE_URL"},
		{"no server", "postgres://nobody@127.0.0.1:1/none", "connect"},
		{"no ledger", pgtest.EmptyURL(t), "outbox-worker migrate"},
	} {
		t.Setenv("DATABASE_URL", "")
		err := run(t.Context(), []string{"-addr", "127.0.0.1:0", "-database-url", tt.url}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
