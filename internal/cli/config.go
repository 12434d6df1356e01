package cli

import (
	"log/slog"
	"reflect"
	"strings"
	"time"
)

// Config is everything that can be configured. docs/configuration.md has a row per
// field, made from the tags: koanf is the name in a file, help the meaning. A field
// that is added here gets its key, environment variable and flag by that alone.
type Config struct {
	Database Database `koanf:"database"`
	Log      Log      `koanf:"log"`
	Worker   Worker   `koanf:"worker"`

	// Providers are raw until somebody needs them, so that a command that only reads
	// the ledger does not need their secrets. See Provider.
	Providers map[string]any `koanf:"providers"`

	// File is the file that was read, or "".
	File string `koanf:"-"`

	env Env
}

// Database says where the ledger is.
type Database struct {
	URL            string        `koanf:"url" several:"true" help:"Where the ledger is: a postgres:// URL or a libpq connection string. DATABASE_URL is honoured, too. run and doctor take several: the flag again for each, a list in the file, or one a line."`
	MaxConns       int           `koanf:"max_conns" help:"Connections in the pool of one process, to each database. A worker opens two more to listen, and wants some per lane: doctor advises."`
	ConnectTimeout time.Duration `koanf:"connect_timeout" help:"How long to try to connect before giving up."`
	PgBouncer      bool          `koanf:"pgbouncer" help:"Set behind a pooler in transaction mode: no prepared statements and no LISTEN. Migrations need a direct connection all the same."`

	// Name is the database to connect to instead of the URL's; "" for that one.
	Name string `koanf:"-"`
}

// Log says what is logged, and how.
type Log struct {
	Level  slog.Level `koanf:"level" help:"debug, info, warn or error."`
	Format string     `koanf:"format" help:"text, json, or auto: text on a terminal, JSON otherwise." oneof:"auto text json"`
}

// Worker is how one replica works: package dispatch's Config, as far as it is a matter of
// settings. Zero leaves the choice to dispatch.
type Worker struct {
	Name         string        `koanf:"name" help:"Who the history says acted. Host and process id if empty."`
	Concurrency  int           `koanf:"concurrency" help:"Calls to providers that this replica has open at once, over all lanes. Each lane has a limit of its own over all replicas, in the catalog."`
	ReleaseLease time.Duration `koanf:"release_lease" help:"How long what was handed to River may wait to be claimed before it is handed over again. Too short only costs jobs that find nothing."`
	IdlePoll     time.Duration `koanf:"idle_poll" help:"How often an idle lane looks for due work that no notification announced; what a missed wake-up costs at most. 0 is 1s, or 250ms behind a pooler."`
	SweepEvery   time.Duration `koanf:"sweep_every" help:"How often expired leases and deadlines are looked for. The outcome of an expired lease is unknown within this time."`
	TrimEvery    time.Duration `koanf:"trim_every" help:"How often what is past its retention is looked for, and forgotten."`
	KeepAll      bool          `koanf:"keep_all" help:"Forget nothing, whatever the catalog's retention says."`
	StopTimeout  time.Duration `koanf:"stop_timeout" help:"How long calls that run may go on after SIGTERM. What has no answer by then is recorded as unknown and looked up."`
}

// Default is the configuration when nobody says anything.
func Default() Config {
	return Config{
		Database: Database{MaxConns: 20, ConnectTimeout: 10 * time.Second},
		Log:      Log{Level: slog.LevelInfo, Format: LogAuto},
		Worker: Worker{
			Concurrency: 100, ReleaseLease: 30 * time.Second,
			SweepEvery: time.Second, TrimEvery: time.Minute, StopTimeout: 30 * time.Second,
		},
	}
}

// Key is one thing that can be configured.
type Key struct {
	Name    string // in a file, nested at the dots
	Env     string // the environment variable
	Flag    string // the flag, without dashes; not every command has it
	Help    string
	Default any

	oneOf   []string
	several bool // a list is as good as a text, and becomes one with an item a line
	index   []int
}

// DefaultText is the default as one would write it in a file, "" for none.
func (k Key) DefaultText() string { return formatValue(k.Default) }

// Keys lists every key of Config with its default, in the order of the struct.
// Providers are not among them: their keys are the adapters'.
func Keys() []Key {
	return keysOf(reflect.ValueOf(Default()), nil, "")
}

func keysOf(v reflect.Value, index []int, prefix string) (keys []Key) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag := f.Tag.Get("koanf")
		at := append(append([]int{}, index...), i)
		switch {
		case tag == "" || tag == "-" || f.Type.Kind() == reflect.Map:
		case f.Type.Kind() == reflect.Struct:
			keys = append(keys, keysOf(v.Field(i), at, prefix+tag+".")...)
		default:
			name := prefix + tag
			keys = append(keys, Key{
				Name:    name,
				Env:     envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "__")),
				Flag:    strings.NewReplacer(".", "-", "_", "-").Replace(name),
				Help:    f.Tag.Get("help"),
				Default: v.Field(i).Interface(),
				oneOf:   strings.Fields(f.Tag.Get("oneof")),
				several: f.Tag.Get("several") != "",
				index:   at,
			})
		}
	}
	return keys
}
