package shop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Summary counts the answers to a feed.
type Summary struct {
	Posted   int `json:"posted"`
	Accepted int `json:"accepted"`
	Repeated int `json:"repeated"`
	Conflict int `json:"conflict"`
	Refused  int `json:"refused"`
	// Retried counts posts beyond the first of a line: no answer, or "try again". One
	// that had been placed all the same is then Repeated, not Accepted.
	Retried int `json:"retried"`
}

// Limits of one post, and how long Feed goes on asking a shop that does not answer.
const (
	postTimeout = 10 * time.Second
	postTries   = 10
	firstPause  = 50 * time.Millisecond
	maxAnswer   = 1 << 20
)

// Feed posts orders, one JSON object a line, to the shop at baseURL, concurrency at a
// time, and counts the answers. Lines of one order are posted one after the other, as
// one customer would; different orders overtake each other.
//
// A post without an answer is repeated: that is safe, and the only way to find out.
// Feed returns what it has counted with the first error: a shop that goes on not
// answering, an answer that is none of its own, ctx's end.
func Feed(ctx context.Context, baseURL string, orders io.Reader, concurrency int) (Summary, error) {
	concurrency = max(concurrency, 1)
	transport := &http.Transport{MaxIdleConnsPerHost: concurrency, MaxConnsPerHost: concurrency}
	defer transport.CloseIdleConnections()
	f := feeder{url: baseURL + "/orders", client: &http.Client{Transport: transport, Timeout: postTimeout}}

	g, ctx := errgroup.WithContext(ctx)
	customers := make([]chan []byte, concurrency)
	for i := range customers {
		customers[i] = make(chan []byte, 16)
		g.Go(func() error { return f.customer(ctx, customers[i]) })
	}
	g.Go(func() error {
		defer func() {
			for _, c := range customers {
				close(c)
			}
		}()
		return deal(ctx, orders, customers)
	})
	err := g.Wait()
	return f.sum, err
}

// deal gives each line to a customer; all lines of an order to the same one.
func deal(ctx context.Context, orders io.Reader, customers []chan []byte) error {
	lines := bufio.NewScanner(orders)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := bytes.Clone(lines.Bytes())
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var key struct {
			Storefront string `json:"storefront"`
			ID         string `json:"order_id"`
		}
		// A line that is no order is posted like the others: the shop refuses it.
		_ = json.Unmarshal(line, &key)
		h := fnv.New32a()
		_, _ = io.WriteString(h, key.Storefront+"\x00"+key.ID)
		select {
		case customers[h.Sum32()%uint32(len(customers))] <- line:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("shop: read orders: %w", err)
	}
	return nil
}

type feeder struct {
	url    string
	client *http.Client

	mu  sync.Mutex
	sum Summary
}

func (f *feeder) customer(ctx context.Context, lines <-chan []byte) error {
	for line := range lines {
		if err := f.place(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// errTryAgain is an answer that asks for the same post once more.
var errTryAgain = errors.New("the shop asks to try again")

// place posts until there is an answer.
func (f *feeder) place(ctx context.Context, line []byte) error {
	pause := firstPause
	for try := 1; ; try++ {
		status, err := f.post(ctx, line)
		if err == nil {
			return f.count(status)
		}
		if ctx.Err() != nil || try == postTries {
			return fmt.Errorf("shop: post order, try %d: %w", try, err)
		}
		f.mu.Lock()
		f.sum.Retried++
		f.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, time.Second)
	}
}

func (f *feeder) post(ctx context.Context, line []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(line))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	// The answer counts when it is whole.
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return 0, err
	}
	if resp.StatusCode >= 500 {
		return 0, fmt.Errorf("%w: %s", errTryAgain, resp.Status)
	}
	return resp.StatusCode, nil
}

func (f *feeder) count(status int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum.Posted++
	switch status {
	case http.StatusCreated:
		f.sum.Accepted++
	case http.StatusOK:
		f.sum.Repeated++
	case http.StatusConflict:
		f.sum.Conflict++
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		f.sum.Refused++
	default:
		return fmt.Errorf("shop: answer %d is not one of a shop", status)
	}
	return nil
}
