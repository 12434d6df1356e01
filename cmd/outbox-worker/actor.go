package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

// actorFlag defines --actor: whom the ledger records for what a command does.
func actorFlag(flags *pflag.FlagSet, into *string) {
	flags.StringVar(into, "actor", "", "who does this, for the record; $USER, or else the database's user")
}

// actorOf is who was named, or $USER, or the user of the database connection.
func actorOf(ctx context.Context, env cli.Env, named string, pool *pgxpool.Pool) (string, error) {
	user, _ := env.Lookup("USER")
	if actor := cmp.Or(named, user); actor != "" {
		return actor, nil
	}
	var session string
	if err := pool.QueryRow(ctx, "SELECT session_user").Scan(&session); err != nil {
		return "", fmt.Errorf("ask who the database's user is: %w", err)
	}
	return session, nil
}
