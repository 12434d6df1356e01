package pgtest

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/peterldowns/pgtestdb"

	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
)

const envName = "OUTBOX_TEST_DATABASE_URL"

// versions are the oldest and the newest that the project promises to work with.
var versions = []int{15, 18}

// server is one Postgres server: named by the environment, or started when first used.
type server struct {
	version int // wanted; 0 for whatever there is
	start   func() (string, error)

	mu   sync.Mutex
	temp *pgtemp.Server
}

var (
	serversMu sync.Mutex
	servers   = map[int]*server{}
)

func serverOf(version int) *server {
	serversMu.Lock()
	defer serversMu.Unlock()
	s := servers[version]
	if s == nil {
		s = &server{version: version}
		s.start = sync.OnceValues(s.begin)
		servers[version] = s
	}
	return s
}

func stopServers() {
	serversMu.Lock()
	defer serversMu.Unlock()
	for _, s := range servers {
		s.mu.Lock()
		if s.temp != nil {
			if err := s.temp.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		s.mu.Unlock()
	}
}

// begin finds or starts the server and returns its URL. The default server is that of
// the newest version found, so that EachVersion does not start one more.
func (s *server) begin() (string, error) {
	if u := s.environment(); u != "" {
		return u, nil
	}
	if s.version == 0 {
		if bin, err := pgtemp.Find(context.Background(), 0); err == nil {
			return serverOf(bin.Major).start()
		}
	}
	temp, err := pgtemp.Start(context.Background(), pgtemp.Options{Version: s.version, Fast: true})
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.temp = temp
	return temp.URL(), nil
}

// environment is the URL that the environment has for this version, or "".
func (s *server) environment() string {
	any := cmp.Or(os.Getenv(envName), os.Getenv("DATABASE_URL"))
	if s.version == 0 {
		return any
	}
	if u := os.Getenv(envName + "_" + strconv.Itoa(s.version)); u != "" {
		return u
	}
	if any != "" && majorOf(any) == s.version {
		return any
	}
	return ""
}

func majorOf(u string) int {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, u)
	if err != nil {
		return 0
	}
	defer conn.Close(ctx)
	var num int
	if conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&num) != nil {
		return 0
	}
	return num / 10000
}

// config connects pgtestdb as the superuser, who owns the databases, too.
func (s *server) config() (pgtestdb.Config, error) {
	raw, err := s.start()
	if err != nil {
		return pgtestdb.Config{}, err
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return pgtestdb.Config{}, fmt.Errorf("%s has to be a URL like postgres://user:password@host:port/database", envName)
	}
	password, _ := u.User.Password()
	user := u.User.Username()
	return pgtestdb.Config{
		DriverName:                "pgx",
		Host:                      u.Hostname(),
		Port:                      cmp.Or(u.Port(), "5432"),
		User:                      user,
		Password:                  url.QueryEscape(password),
		Database:                  cmp.Or(u.Path, "/postgres")[1:],
		Options:                   u.RawQuery,
		TestRole:                  &pgtestdb.Role{Username: user, Password: url.QueryEscape(password), Capabilities: "SUPERUSER"},
		ForceTerminateConnections: true,
	}, nil
}

func eachVersion(t *testing.T, f func(*testing.T, *server)) {
	t.Helper()
	ran := false
	for _, v := range versions {
		s := serverOf(v)
		t.Run("postgres"+strconv.Itoa(v), func(t *testing.T) {
			if s.environment() == "" {
				if _, err := pgtemp.Find(t.Context(), v); err != nil {
					t.Skipf("no Postgres %d here; name one in %s_%d or install it: %v", v, envName, v, err)
				}
			}
			ran = true
			f(t, s)
		})
	}
	if !ran {
		t.Run("default", func(t *testing.T) { f(t, serverOf(0)) })
	}
}
