package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/figures"
)

// measure prints every figure of docs/performance.md.
func measure(ctx context.Context, o options) (err error) {
	database := cli.Default().Database
	if database.URL = o.URL; o.URL == "" {
		server, err := start(ctx, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		database.URL = server.URL()
	}
	f := o.Figures
	if f.Program, err = filepath.Abs(f.Program); err != nil {
		return err
	}
	f.Progress, f.Checkpoint = os.Stderr, true
	guest, err := figures.Visit(ctx, database, "bench", "", os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guest.Leave(ctx)) }()
	server, err := guest.Server(ctx)
	if err != nil {
		return err
	}
	got, err := figures.Run(ctx, f, guest.Open)
	if err != nil {
		return err
	}
	if err := figures.Print(os.Stdout, got); err != nil {
		return err
	}
	if !o.JSON {
		return nil
	}
	missed := []string{}
	for _, f := range got {
		if f.Missed {
			missed = append(missed, f.ID)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"postgres": server.Postgres, "figures": got, "missed": missed})
}
