package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/clitest"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

func TestDocsHaveTheCommands(t *testing.T) {
	clitest.Section(t, "cli.md", "outbox-worker", clitest.Reference(newApp(cli.Env{}).Root))
}

func TestDocsHaveTheExitCodes(t *testing.T) {
	var b strings.Builder
	b.WriteString("| code | | when | what to do |\n| --- | --- | --- | --- |\n")
	for _, m := range cli.ExitCodes() {
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", m.Code, m.Name, m.Meaning, m.Remedy)
	}
	clitest.Section(t, "cli.md", "exit codes", b.String())
}

func TestDocsHaveEveryKey(t *testing.T) {
	var b strings.Builder
	b.WriteString("| key | in the environment | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, k := range cli.Keys() {
		def := k.DefaultText()
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", k.Name, k.Env, def, k.Help)
	}
	clitest.Section(t, "configuration.md", "keys", b.String())
}

func TestDocsHaveTheAdaptersKeys(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]any{
		"httpjson": {httpjson.Config{}, httpjson.Operation{}},
		"smtp":     {smtp.Config{}},
	} {
		var want []string
		for _, s := range settings {
			for i := range reflect.TypeOf(s).NumField() {
				if key, _, _ := strings.Cut(reflect.TypeOf(s).Field(i).Tag.Get("yaml"), ","); key != "" && key != "-" {
					want = append(want, key)
				}
			}
		}
		_, section, _ := strings.Cut(page(t, "configuration.md"), "<!-- begin "+name+" -->")
		section, _, _ = strings.Cut(section, "<!-- end "+name+" -->")
		var got []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(section, -1) {
			got = append(got, row[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("docs/configuration.md has for %s\n%v, not\n%v", name, got, want)
		}
	}
}

// The example works: it is loaded, and its providers are made.
func TestDocsExample(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(page(t, "configuration.md"), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	file := filepath.Join(t.TempDir(), "outbox-worker.yaml")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg, err := cli.Load(cli.Env{Environ: []string{"OUTBOX_CONFIG=" + file, "DB_PASSWORD=a", "PAYMENTS_TOKEN=b", "SMTP_PASSWORD=c"}},
		pflag.NewFlagSet("test", pflag.ContinueOnError))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := openProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := opened["payments"].Serves("refund_charge", 1); !ok || len(opened) != 2 || cfg.Database.URL != "postgres://worker:a@db.example:5432/shop" {
		t.Errorf("%v %+v", opened, cfg)
	}
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(clitest.Root(), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
