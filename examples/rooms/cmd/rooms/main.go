// Command rooms is the example hotel: it asks for a room, books it, and works.
//
//	rooms work --smtp 127.0.0.1:1025
//	rooms ask --room 12 --night 2027-01-31 --guest ann@example.com   # prints an operation id
//	rooms book ID                                                    # as often as you like
//
// DATABASE_URL names a database whose ledger has been migrated and whose catalog has been
// applied; see the README beside the package.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/examples/rooms"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "rooms:", err)
		}
		stop()
		os.Exit(1)
	}
}

// requestTime bounds what a guest waits for.
const requestTime = 10 * time.Second

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("say work, ask or book")
	}
	flags := flag.NewFlagSet("rooms "+args[0], flag.ContinueOnError)
	var s rooms.Stay
	flags.StringVar(&s.Room, "room", "", "ask: which room")
	flags.StringVar(&s.Night, "night", "", "ask: which night, as in 2027-01-31")
	flags.StringVar(&s.Guest, "guest", "", "ask: the guest's mail address")
	smtp := flags.String("smtp", "127.0.0.1:1025", "work: the mail server")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	if args[0] == "work" {
		if err := rooms.Setup(ctx, pool); err != nil {
			return err
		}
		return rooms.Work(ctx, pool, *smtp, slog.Default())
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	switch args[0] {
	case "ask":
		id, err := rooms.Ask(ctx, pool, s)
		if err == nil {
			_, err = fmt.Fprintln(out, id)
		}
		return err
	case "book":
		id, err := uuid.Parse(flags.Arg(0))
		if err != nil {
			return fmt.Errorf("give the operation id that ask printed: %w", err)
		}
		answer, err := rooms.Book(ctx, pool, id)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(answer)
	}
	return fmt.Errorf("%q is none of work, ask and book", args[0])
}
