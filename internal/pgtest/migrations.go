package pgtest

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/migrations"
)

func migrationsChecksum() string { return migrations.Checksum() }

func migrationsUp(ctx context.Context, pool *pgxpool.Pool) error {
	return migrations.Up(ctx, pool)
}
