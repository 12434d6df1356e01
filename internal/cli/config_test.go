package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load loads a configuration from a file's text, environment and flags.
func load(t *testing.T, text string, environ []string, args ...string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox-worker.yaml")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddConfigFlag(flags)
	for _, k := range Keys() {
		AddFlags(flags, k.Name)
	}
	if err := flags.Parse(append([]string{"--config", path}, args...)); err != nil {
		t.Fatal(err)
	}
	return Load(Env{Environ: environ}, flags)
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	const file = "worker: {concurrency: 1, idle_poll: 2s}\nlog: {level: error}"
	for _, test := range []struct {
		claim   string
		file    string
		environ []string
		args    []string
		want    int
	}{
		{"default", "", nil, nil, Default().Worker.Concurrency},
		{"the file wins over the default", file, nil, nil, 1},
		{"the environment wins over the file", file, []string{"OUTBOX_WORKER__CONCURRENCY=2"}, nil, 2},
		{"a flag wins over the environment", file, []string{"OUTBOX_WORKER__CONCURRENCY=2"}, []string{"--worker-concurrency", "3"}, 3},
		{"an empty variable is not set", file, []string{"OUTBOX_WORKER__CONCURRENCY="}, nil, 1},
		{"the last of two variables counts", file, []string{"OUTBOX_WORKER__CONCURRENCY=2", "OUTBOX_WORKER__CONCURRENCY=4"}, nil, 4},
		{"a flag may say zero", file, nil, []string{"--worker-concurrency=0"}, 0},
	} {
		t.Run(test.claim, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, test.file, test.environ, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if c.Worker.Concurrency != test.want {
				t.Errorf("%d, not %d", c.Worker.Concurrency, test.want)
			}
			if test.file != "" && c.Worker.IdlePoll != 2*time.Second {
				t.Errorf("what nobody overrode is %s", c.Worker.IdlePoll)
			}
		})
	}
}

func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		claim, file string
		environ     []string
		want        string
	}{
		{"DATABASE_URL wins over the file", "database: {url: file}", []string{"DATABASE_URL=plain"}, "plain"},
		{"our own name wins over it", "database: {url: file}", []string{"OUTBOX_DATABASE__URL=own", "DATABASE_URL=plain"}, "own"},
		{"an empty one is not set", "database: {url: file}", []string{"DATABASE_URL="}, "file"},
		{"a variable is filled in", "database: {url: 'postgres://${U}@h/$${x}'}", []string{"U=me"}, "postgres://me@h/${x}"},
		{"a value is not expanded twice", "database: {url: '${U}'}", []string{"U=${V}"}, "${V}"},
		{"nor is the environment", "", []string{"DATABASE_URL=${V}"}, "${V}"},
	} {
		t.Run(test.claim, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, test.file, test.environ)
			if err != nil {
				t.Fatal(err)
			}
			if c.Database.URL != test.want {
				t.Errorf("%s, not %s", c.Database.URL, test.want)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		claim, file string
		environ     []string
		args        []string
		want        string
	}{
		{"an unknown key, with its line", "log:\n  levle: info", nil, nil, "yaml:2: unknown key log.levle, did you mean log.level?"},
		{"every unknown key", "a: 1\nb: 2", nil, nil, "yaml:2: unknown key b"},
		{"a section that is none", "log: info", nil, nil, "yaml:1: log is a section"},
		{"a list on top", "- log", nil, nil, "yaml:1: not a mapping"},
		{"a number where a text belongs", "log: {format: 1}", nil, nil, "log.format: 1: give a text"},
		{"a text that is not offered", "log: {format: xml}", nil, nil, `log.format: "xml": give one of auto, text, json`},
		{"a duration without a unit", "worker: {stop_timeout: 30}", nil, nil, `worker.stop_timeout: "30": give a duration with its unit`},
		{"a negative duration", "worker: {stop_timeout: -1s}", nil, nil, "give a duration"},
		{"a fraction where a number belongs", "worker: {concurrency: 1.5}", nil, nil, `"1.5": give a whole number`},
		{"a negative number", "", nil, []string{"--worker-concurrency=-1"}, "--worker-concurrency: worker.concurrency:"},
		{"neither true nor false", "database: {pgbouncer: maybe}", nil, nil, "give true or false"},
		{"a map where a text belongs", "database: {url: {a: b}}", nil, nil, "give a text"},
		{"one underscore too few", "", []string{"OUTBOX_DATABASE_URL=x"}, nil, "$OUTBOX_DATABASE_URL is not read: two underscores"},
		{"a variable without its key", "", []string{"OUTBOX_WORKER__FOO=1"}, nil, "$OUTBOX_WORKER__FOO: unknown key worker.foo"},
		{"a reference to nothing", "database: {url: '${NOPE}'}", nil, nil, "environment variable NOPE is not set"},
		{"a shell's default", "database: {url: '${A:-b}'}", nil, nil, "write ${NAME} for an environment variable"},
		{"an open reference", "database: {url: '${A'}", nil, nil, "write ${NAME}"},
		{"a provider that is no mapping", "providers: x", nil, nil, "providers: give a name and its settings"},
		{"tabs", "log:\n\tlevel: info", nil, nil, "(not valid YAML)"},
	} {
		t.Run(test.claim, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.file, test.environ, test.args...)
			known, ok := errors.AsType[*Error](err)
			if !ok || known.Code != Usage || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Kubernetes sets these for a service called outbox-worker, and the tests' own.
func TestForeignVariablesAreLeftAlone(t *testing.T) {
	t.Parallel()
	_, err := load(t, "", []string{
		"OUTBOX_WORKER_PORT=tcp://10.0.0.1:80", "OUTBOX_WORKER_SERVICE_HOST=10.0.0.1", "OUTBOX_TEST_DATABASE_URL=x", "OUTBOX_CONFIG=",
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryKeyCanBeSetInEveryWay(t *testing.T) {
	t.Parallel()
	for _, k := range Keys() {
		value := formatValue(k.Default)
		if value == "" {
			value = "x"
		}
		section, name, _ := strings.Cut(k.Name, ".")
		quoted := value
		if _, ok := k.Default.(string); ok {
			quoted = `"` + value + `"`
		}
		for way, try := range map[string]func() (Config, error){
			"file": func() (Config, error) { return load(t, section+": {"+name+": "+quoted+"}", nil) },
			"env":  func() (Config, error) { return load(t, "", []string{k.Env + "=" + value}) },
			"flag": func() (Config, error) { return load(t, "", nil, "--"+k.Flag+"="+value) },
		} {
			if _, err := try(); err != nil {
				t.Errorf("%s by %s: %v", k.Name, way, err)
			}
		}
		if k.Help == "" || !strings.HasSuffix(k.Help, ".") {
			t.Errorf("%s: says nothing about itself, in a sentence", k.Name)
		}
	}
}

const providersYAML = `
providers:
  payments:
    adapter: httpjson
    base_url: https://x
    headers: {X-Foo.Bar: "Bearer ${SECRET}"}
    operations: {charge_card.v1: {path: /c}}
    timeout: 5s
`

type adapterConfig struct {
	BaseURL    string                    `yaml:"base_url"`
	Token      string                    `yaml:"token"`
	Headers    map[string]string         `yaml:"headers"`
	Operations map[string]map[string]any `yaml:"operations"`
	Timeout    time.Duration             `yaml:"timeout"`
}

func TestProviderSettings(t *testing.T) {
	t.Parallel()
	c, err := load(t, providersYAML, []string{"SECRET=s3", "OUTBOX_PROVIDERS__PAYMENTS__TOKEN=tok"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // asking twice changes nothing
		adapter, decode, err := c.Provider("payments")
		if err != nil || adapter != "httpjson" {
			t.Fatal(adapter, err)
		}
		var got adapterConfig
		if err := decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Token != "tok" || got.Headers["X-Foo.Bar"] != "Bearer s3" || got.Operations["charge_card.v1"]["path"] != "/c" || got.Timeout != 5*time.Second {
			t.Errorf("%+v", got)
		}
	}
}

func TestProviderMistakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ claim, file, want string }{
		{"a secret that is not set", providersYAML, "providers.payments.headers.X-Foo.Bar: environment variable SECRET is not set"},
		{"no adapter", "providers: {payments: {base_url: x}}", "providers.payments.adapter: give the name"},
		{"no settings", "providers: {payments: }", "providers.payments: give its adapter"},
		{"an unknown setting", "providers: {payments: {adapter: x, bse_url: y}}", "providers.payments: unknown key bse_url"},
		{"a wrong type", "providers: {payments: {adapter: x, headers: [1]}}", "providers.payments: "},
		{"a duration without a unit", "providers: {payments: {adapter: x, timeout: soon}}", "providers.payments: "},
	} {
		t.Run(test.claim, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, test.file, nil) // loading alone needs no secret
			if err != nil {
				t.Fatal(err)
			}
			_, decode, err := c.Provider("payments")
			if err == nil {
				err = decode(&adapterConfig{})
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "line ") {
				t.Errorf("%v", err)
			}
		})
	}
}
