package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// DefaultVersion is the major version fetched when none is asked for or found.
const DefaultVersion = 18

// BinEnv names the environment variable with the bin directories to use before all
// others, separated like those of PATH.
const BinEnv = "OUTBOX_PG_BIN"

// Binaries is a directory with the programs postgres and initdb.
type Binaries struct {
	Dir     string
	Version string // "15.18"
	Major   int    // 15
}

func (b Binaries) path(name string) string { return filepath.Join(b.Dir, name) }

// Find looks for binaries of a major version on this machine, or for the newest when
// that is 0. It fetches nothing.
func Find(ctx context.Context, major int) (Binaries, error) {
	acct, err := serverAccount()
	if err != nil {
		return Binaries{}, fmt.Errorf("pgtemp: %w", err)
	}
	bin, err := find(ctx, major, acct)
	if err != nil {
		return Binaries{}, fmt.Errorf("pgtemp: %w", err)
	}
	return bin, nil
}

func findOrFetch(ctx context.Context, major int, acct *account, log *slog.Logger) (Binaries, error) {
	bin, err := find(ctx, major, acct)
	if err == nil || !errors.Is(err, errNotFound) {
		return bin, err
	}
	if major == 0 {
		major = DefaultVersion
	}
	dir, ferr := fetch(ctx, major, acct, log)
	if ferr != nil {
		return Binaries{}, fmt.Errorf("%w\nand they could not be fetched: %w\n%s", err, ferr, installHint(major))
	}
	return probe(ctx, dir, acct)
}

func installHint(major int) string {
	install := fmt.Sprintf("install Postgres %d with your package manager", major)
	switch runtime.GOOS {
	case "linux":
		install = "install Postgres (for example: apt-get install postgresql)"
	case "darwin":
		install = fmt.Sprintf("install Postgres (for example: brew install postgresql@%d)", major)
	}
	return install + ", or name the directory of its programs in " + BinEnv + ", or set DATABASE_URL to use a running server"
}

var errNotFound = errors.New("no Postgres programs found")

// find looks for a major version, or for the newest when that is 0. Directories named
// in BinEnv come first and must be right; elsewhere what does not run is passed over.
func find(ctx context.Context, major int, acct *account) (Binaries, error) {
	for _, dir := range filepath.SplitList(os.Getenv(BinEnv)) {
		bin, err := probe(ctx, dir, acct)
		if err != nil {
			return Binaries{}, fmt.Errorf("%s: %w\nset it to a directory with the programs postgres and initdb, or unset it", BinEnv, err)
		}
		if major == 0 || bin.Major == major {
			return bin, nil
		}
	}
	var best Binaries
	var passed error
	for _, dir := range candidates(acct) {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err != nil {
			continue
		}
		bin, err := probe(ctx, dir, acct)
		if err != nil {
			passed = errors.Join(passed, err)
			continue
		}
		if bin.Major == major {
			return bin, nil
		}
		if major == 0 && bin.Major > best.Major {
			best = bin
		}
	}
	switch {
	case best.Major != 0:
		return best, nil
	case ctx.Err() != nil:
		return Binaries{}, ctx.Err()
	case passed != nil:
		return Binaries{}, fmt.Errorf("%w%s that can be used: %w", errNotFound, versionNote(major), passed)
	}
	return Binaries{}, fmt.Errorf("%w%s on this machine", errNotFound, versionNote(major))
}

func versionNote(major int) string {
	if major == 0 {
		return ""
	}
	return fmt.Sprintf(" of version %d", major)
}

// candidates are the bin directories to look at, by preference.
func candidates(acct *account) []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	globs := []string{
		"/usr/lib/postgresql/*/bin", // Debian
		"/usr/pgsql-*/bin",          // PGDG for RPM systems
		"/usr/libexec/postgresql*",  // Alpine
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	}
	for _, cache := range cacheDirs(acct) {
		globs = append(globs, filepath.Join(cache, "*-"+platform(), "native", "bin"))
	}
	for _, glob := range globs {
		found, _ := filepath.Glob(glob)
		dirs = append(dirs, found...)
	}
	return dirs
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// probe runs the programs in dir, as the server's account, for their version.
func probe(ctx context.Context, dir string, acct *account) (Binaries, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	bin := Binaries{Dir: dir}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(bin.path(name)); err != nil {
			return Binaries{}, fmt.Errorf("no program %s in %s", name, dir)
		}
		if acct != nil {
			if at := acct.barredAt(dir); at != "" {
				return Binaries{}, fmt.Errorf("running as root, so Postgres has to run as user %s, which cannot enter %s on the way to %s", acct.name, at, dir)
			}
		}
		out, err := runTool(ctx, acct, "/", bin.path(name), "--version")
		if err != nil {
			return Binaries{}, fmt.Errorf("%s --version: %w: %s", bin.path(name), err, strings.TrimSpace(string(out)))
		}
		m := versionLine.FindSubmatch(out)
		if m == nil {
			return Binaries{}, fmt.Errorf("%s does not tell its version: %q", bin.path(name), out)
		}
		version := string(m[1])
		if bin.Version != "" && bin.Version != version {
			return Binaries{}, fmt.Errorf("initdb and postgres in %s are of versions %s and %s", dir, bin.Version, version)
		}
		bin.Version = version
		bin.Major, _ = strconv.Atoi(string(m[2]))
	}
	return bin, nil
}
