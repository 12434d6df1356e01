package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/figures"
)

// measure prints every figure of docs/performance.md.
func measure(ctx context.Context, o options) (err error) {
	url, version := o.URL, "given"
	if url == "" {
		server, err := start(ctx, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		url, version = server.URL(), server.Version()
	}
	f := o.Figures
	if f.Program, err = filepath.Abs(f.Program); err != nil {
		return err
	}
	f.Progress = os.Stderr
	got, err := figures.Run(ctx, f, func(ctx context.Context, name string) (*pgxpool.Pool, error) {
		return emptyDatabase(ctx, url, "bench_"+name)
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\twhat\tvalue\tagainst\tbaseline\tratio (low – high)\tgoal\t")
	missed := []string{}
	for _, f := range got {
		verdict := ""
		if f.Missed {
			verdict = "missed"
			missed = append(missed, f.ID)
		}
		fmt.Fprintf(w, "%s\t%s\t%.4g %s\t%s\t%.4g\t%.2f (%.2f – %.2f)\t%s\t%s\n", f.ID, f.What, f.Value, f.Unit, f.Against, f.Baseline, f.Ratio, f.RatioLow, f.RatioHi, f.Goal, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if o.JSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"postgres": version, "figures": got, "missed": missed})
	}
	return nil
}

// emptyDatabase makes one and opens it with as many connections as a step wants at most.
func emptyDatabase(ctx context.Context, url, name string) (*pgxpool.Pool, error) {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close(ctx) }()
	if _, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return nil, err
	}
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database, config.MaxConns = name, 24
	return pgxpool.NewWithConfig(ctx, config)
}
