package rooms

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

// Work runs the hotel's worker until ctx ends: bookings in this database, confirmations
// through the mail server at smtpAddress. Any number may run. The pool is the worker's own.
func Work(ctx context.Context, pool *pgxpool.Pool, smtpAddress string, log *slog.Logger) error {
	bookings, err := Provider()
	if err != nil {
		return err
	}
	mail, err := smtp.New(smtp.Config{
		Account: "hotel-mail", Address: smtpAddress, TLS: smtp.TLSNone, From: "The Hotel <desk@hotel.example>",
		Operations: []string{"confirm_booking"},
	})
	if err != nil {
		return err
	}
	w, err := dispatch.New(dispatch.Config{
		Pool: pool, Providers: map[string]providers.Provider{"rooms": bookings, "mail": mail}, Logger: log,
		ReleaseLease: 3 * time.Second, // guests wait: what a dead worker had taken goes again soon
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
