package main

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// sqlstate is the code of a database's error, or "".
func sqlstate(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
