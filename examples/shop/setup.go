package shop

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// setupLock is the advisory lock under which instances take turns: the ASCII word
// "shop". CREATE … IF NOT EXISTS alone fails when two do it at once.
const setupLock = 0x73686f70

// Setup creates the shop's own tables where they are missing. Any number of instances
// may do so at once. The ledger is not the shop's to create: see Ready.
func Setup(ctx context.Context, db *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", setupLock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("shop: create tables: %w", err)
	}
	return nil
}
