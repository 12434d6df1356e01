package main

import (
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress shows how much of size is done; -1 is unknown.
func newProgress(env cli.Env, size int64) *progress {
	if !cli.Terminal(env.Stderr) {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(env.Stderr),
		progressbar.OptionSetDescription("enqueue"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionEnableColorCodes(false),
	)}
}

// A terminal that cannot be written to must not stop the work, so the bar's errors are
// left alone.

func (p *progress) add(bytes int) {
	if p.bar != nil {
		_ = p.bar.Add(bytes)
	}
}

func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
