package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbyName is that of the one standby: its slot, and what the primary waits for.
const standbyName = "pgtemp_standby"

const streamPoll = 20 * time.Millisecond

// Standby starts a synchronous standby of a server that runs, under load or not. Once it
// returns no commit of s is acknowledged before the standby has it. dir is as Options.Dir.
// The standby answers queries, reading only, until Promote. A server has one at a time.
func (s *Server) Standby(ctx context.Context, dir string) (*Server, error) {
	standby, err := s.standby(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("pgtemp: standby: %w", err)
	}
	return standby, nil
}

func (s *Server) standby(ctx context.Context, dir string) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	primary, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = primary.Close(context.WithoutCancel(ctx)) }()
	o := s.opts
	o.Dir = dir
	n := &Server{opts: o, log: s.log, bin: s.bin, follows: s.port}
	if n.home, err = openHome(o, s.home.acct, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.home.close())
		}
	}()
	if n.home.major != 0 {
		return nil, fmt.Errorf("%s has a cluster already", n.home.dir)
	}
	if err := s.copyTo(ctx, primary, n.home); err != nil {
		return nil, fmt.Errorf("copy the data: %w", err)
	}
	if err := n.launchOnFreePort(ctx); err != nil {
		return nil, err
	}
	if err := n.awaitStreaming(ctx, primary); err != nil {
		return nil, errors.Join(err, n.halt(ModeImmediate))
	}
	return n, nil
}

// awaitStreaming waits until the standby follows, and then has the primary wait for it.
func (s *Server) awaitStreaming(ctx context.Context, primary *pgx.Conn) error {
	for _, sql := range []string{
		`SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = '` + standbyName + `' AND state = 'streaming')`,
		`ALTER SYSTEM SET synchronous_standby_names = '` + standbyName + `'`,
		`SELECT pg_reload_conf()`,
		`SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = '` + standbyName + `' AND sync_state = 'sync')`,
		`CHECKPOINT`, // commits wait from when the checkpointer has heard of it, which it has before it does this
	} {
		if !strings.HasPrefix(sql, "SELECT EXISTS") {
			if _, err := primary.Exec(ctx, sql); err != nil {
				return err
			}
			continue
		}
		for ok := false; !ok; {
			if err := primary.QueryRow(ctx, sql).Scan(&ok); err != nil {
				return fmt.Errorf("it does not follow: %w; its log ends with:\n%s", err, s.home.logTail())
			}
			if !ok {
				time.Sleep(streamPoll)
			}
		}
	}
	return nil
}

// Promote makes a standby a primary, on a timeline of its own. Its former primary must be
// down.
func (s *Server) Promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return fmt.Errorf("pgtemp: promote: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var done bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote(true, 60)").Scan(&done); err != nil || !done {
		return fmt.Errorf("pgtemp: promote: %w; its log ends with:\n%s", errors.Join(err, ctx.Err()), s.home.logTail())
	}
	return nil
}

// copyTo copies the data of a running server as pg_basebackup does, which not every
// distribution has: between pg_backup_start and pg_backup_stop files may be torn, and the
// WAL from there on, which the slot keeps, mends them.
func (s *Server) copyTo(ctx context.Context, primary *pgx.Conn, to *home) error {
	for _, sql := range []string{
		`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '` + standbyName + `'`,
		`SELECT pg_create_physical_replication_slot('` + standbyName + `', true)`,
		`SELECT pg_backup_start('` + standbyName + `', true)`,
	} {
		if _, err := primary.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := copyTree(s.home.data(), to.data()); err != nil {
		return err
	}
	var label string
	if err := primary.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		return err
	}
	for name, text := range map[string]string{"backup_label": label, "standby.signal": ""} {
		if err := os.WriteFile(filepath.Join(to.data(), name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	to.major = s.home.major
	if to.acct == nil {
		return nil
	}
	return filepath.WalkDir(to.data(), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, to.acct.uid, to.acct.gid))
	})
}

// notCopied are files of the primary's own: its processes, its slots, its settings of
// whom to wait for, and WAL, which comes by streaming.
func notCopied(path string) bool {
	switch path {
	case "postmaster.pid", "postmaster.opts", "postgresql.auto.conf":
		return true
	}
	dir := filepath.Dir(path)
	return dir == "pg_wal" || dir == "pg_replslot" || dir == "pg_dynshmem" || dir == "pg_stat_tmp" || dir == filepath.Join("pg_wal", "archive_status")
}

// copyTree copies files and directories; what vanishes meanwhile was temporary.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case d.IsDir() && (name == filepath.Join("pg_wal", "archive_status") || name == filepath.Join("pg_wal", "summaries")):
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case notCopied(name) && d.IsDir():
			return filepath.SkipDir
		case notCopied(name) || !(d.IsDir() || d.Type().IsRegular()):
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		return copyFile(path, filepath.Join(to, name))
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
