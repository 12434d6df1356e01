// Command shop serves the example shop. It expects a database whose ledger has been
// migrated and whose catalog has been applied; see the README beside the package.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, err)
		}
		stop()
		os.Exit(1)
	}
}

// Limits of the server. What a request may do in the database is bounded by the shop.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 15 * time.Second
	idleTimeout  = 2 * time.Minute
	stopTimeout  = 10 * time.Second
	startTimeout = 15 * time.Second
)

// run serves until ctx ends, then finishes the requests that are running. The first
// line on out says where it listens.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	flags.SetOutput(out)
	addr := flags.String("addr", "127.0.0.1:8080", "address to listen on; port 0 picks one")
	database := flags.String("database-url", "", "Postgres URL (default: DATABASE_URL of the environment)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(out, nil))
	db, err := open(ctx, cmp.Or(*database, os.Getenv("DATABASE_URL")))
	if err != nil {
		return err
	}
	defer db.Close()

	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", *addr)
	if err != nil {
		return fmt.Errorf("shop: %w", err)
	}
	return serve(ctx, l, shop.Handler(db, log), log)
}

// open connects, creates the shop's tables and makes sure that there is a ledger, so
// that a missing one is found at the start and not by the first customer.
func open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	if url == "" {
		return nil, errors.New("shop: no database: set DATABASE_URL or give -database-url")
	}
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("shop: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := errors.Join(shop.Setup(ctx, db), shop.Ready(ctx, db)); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

func serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	log.Info("listening", "url", "http://"+l.Addr().String())
	select {
	case err := <-failed:
		return fmt.Errorf("shop: serve: %w", err)
	case <-ctx.Done():
	}
	log.Info("stopping")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return errors.Join(fmt.Errorf("shop: stop: %w", err), server.Close())
	}
	return nil
}
