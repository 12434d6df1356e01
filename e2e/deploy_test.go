package e2e_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	worker "github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// margin is what a supervisor must wait longer than the worker itself does: time to
// record what the last calls brought.
const margin = 10 * time.Second

func checkGrace(t *testing.T, stop, grace time.Duration) {
	t.Helper()
	if stop == 0 || grace < stop+margin {
		t.Errorf("it is killed after %v, but may take %v to stop and %v to record what its calls brought", grace, stop, margin)
	}
}

func duration(d types.Duration) time.Duration { return time.Duration(d) }

// stopTimeout loads a configuration file as the worker does.
func stopTimeout(t *testing.T, path string) time.Duration {
	t.Helper()
	return load(t, path).Worker.StopTimeout
}

func load(t *testing.T, path string, env ...string) worker.Config {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	worker.AddConfigFlag(flags)
	if err := flags.Parse([]string{"--config", path}); err != nil {
		t.Fatal(err)
	}
	cfg, err := worker.Load(worker.Env{Environ: env}, flags)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.ProviderNames()) == 0 {
		t.Errorf("%s has no provider", path)
	}
	for _, name := range cfg.ProviderNames() {
		if _, _, err := cfg.Provider(name); err != nil {
			t.Error(err)
		}
	}
	return cfg
}

// manifest is the part of a Kubernetes object that is looked at here.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	Grace           int         `yaml:"terminationGracePeriodSeconds"`
	InitContainers  []container `yaml:"initContainers"`
	Containers      []container
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
	} `yaml:"securityContext"`
	Volumes []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type container struct {
	Name  string
	Image string
	Args  []string
	Env   []struct {
		Name      string
		ValueFrom struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Liveness     any `yaml:"livenessProbe"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	Resources struct{ Requests, Limits map[string]string }
}

func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob("../deploy/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	all := map[string]manifest{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for d := yaml.NewDecoder(f); ; {
			var m manifest
			if err := d.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if m.APIVersion == "" || m.Metadata.Name == "" {
				t.Errorf("%s: an object without apiVersion or name", file)
			}
			all[m.Kind] = m
		}
	}
	return all
}

func TestKubernetesContainers(t *testing.T) {
	t.Parallel()
	all, bin := manifests(t), program(t)
	config := all["ConfigMap"]
	for _, kind := range []string{"Job", "Deployment"} {
		pod := all[kind].Spec.Template.Spec
		if !pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s may run as root", kind)
		}
		for _, v := range pod.Volumes {
			if v.ConfigMap.Name != config.Metadata.Name {
				t.Errorf("%s: volume %s is of an unknown ConfigMap %q", kind, v.Name, v.ConfigMap.Name)
			}
		}
		containers := slices.Concat(pod.InitContainers, pod.Containers)
		if len(containers) == 0 {
			t.Errorf("%s has no containers", kind)
		}
		for _, c := range containers {
			checkCommand(t, bin, kind+" "+c.Name, c.Args)
			if c.Resources.Limits["memory"] == "" || c.Resources.Requests["cpu"] == "" {
				t.Errorf("%s %s: no memory limit or no CPU request", kind, c.Name)
			}
			if _, tag, _ := strings.Cut(c.Image, ":"); tag == "" || tag == "latest" {
				t.Errorf("%s %s: image %q has no version", kind, c.Name, c.Image)
			}
			for _, arg := range c.Args { // files have to be in what is mounted
				name, mounted := strings.CutPrefix(arg, "/etc/outbox-worker/")
				if strings.HasPrefix(arg, "/") && (!mounted || config.Data[name] == "" || len(c.VolumeMounts) == 0) {
					t.Errorf("%s %s: there is no file %s", kind, c.Name, arg)
				}
			}
		}
	}
	for _, kind := range []string{"Deployment", "PodDisruptionBudget"} {
		if got, want := all[kind].Spec.Selector.MatchLabels["app.kubernetes.io/name"], all["Deployment"].Spec.Template.Metadata.Labels["app.kubernetes.io/name"]; got == "" || got != want {
			t.Errorf("%s selects %q, the workers are %q", kind, got, want)
		}
	}
}

// The settings of the ConfigMap load with exactly what the Secret puts into the
// environment, and the worker is not killed before it has stopped.
func TestKubernetesSettings(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	data := all["ConfigMap"].Data
	path := filepath.Join(t.TempDir(), "outbox-worker.yaml")
	if err := os.WriteFile(path, []byte(data["outbox-worker.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := all["Deployment"].Spec.Template.Spec
	worker := pod.Containers[0]
	var env []string
	for _, e := range worker.Env {
		env = append(env, e.Name+"=x")
	}
	cfg := load(t, path, env...)
	checkGrace(t, cfg.Worker.StopTimeout, time.Duration(pod.Grace)*time.Second)
	if cfg.Worker.Name != "x" {
		t.Errorf("the pod's name does not reach the worker: %q", cfg.Worker.Name)
	}
	if worker.Liveness != nil {
		t.Error("a liveness probe kills healthy workers in the middle of calls; see deploy/README.md")
	}
	c, err := catalog.Parse("catalog.yaml", []byte(data["catalog.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, lane := range c.Lanes {
		if !slices.Contains(cfg.ProviderNames(), lane.Provider) {
			t.Errorf("lane %s: no provider %s", lane.Name, lane.Provider)
		}
	}
}

func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/systemd/outbox-worker.service")
	if err != nil {
		t.Fatal(err)
	}
	settings, section := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case !ok || section == "":
			t.Errorf("not a setting: %q", line)
		default:
			settings[section+"."+key] = value
		}
	}
	for _, key := range []string{"Unit.Description", "Service.ExecStart", "Service.EnvironmentFile", "Install.WantedBy"} {
		if settings[key] == "" {
			t.Errorf("no %s", key)
		}
	}
	command := strings.Fields(settings["Service.ExecStart"])
	if len(command) == 0 || filepath.Base(command[0]) != "outbox-worker" {
		t.Fatalf("ExecStart=%s", settings["Service.ExecStart"])
	}
	checkCommand(t, program(t), "ExecStart", command[1:])
	grace, err := time.ParseDuration(settings["Service.TimeoutStopSec"])
	if err != nil {
		t.Fatal(err)
	}
	checkGrace(t, worker.Default().Worker.StopTimeout, grace)
}

// deploy/postgres/roles.sql gives each login what its comment says, and no table.
func TestRoles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/postgres/roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pgtest.DB(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // roles belong to the whole server
	if _, err := tx.Exec(t.Context(), string(text)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		login            string
		role             string
		reads, enqueues  bool
		updates, inserts bool // outbox.outbox, outbox.intents
		sees             bool // other sessions, as doctor has to
	}{
		{login: "shop", role: "outbox_app", enqueues: true},
		{login: "outbox_dispatch", role: "outbox_worker", enqueues: true, reads: true, updates: true, sees: true},
		{login: "alice", role: "outbox_operator", enqueues: true, reads: true, sees: true},
	}
	for _, tt := range tests {
		rows, err := tx.Query(t.Context(), `SELECT pg_has_role($1, $2, 'USAGE'), has_function_privilege($1, p.oid, 'EXECUTE'),
			has_table_privilege($1, 'outbox.intents', 'SELECT'), has_table_privilege($1, 'outbox.outbox', 'UPDATE'),
			has_table_privilege($1, 'outbox.intents', 'INSERT'), pg_has_role($1, 'pg_read_all_stats', 'USAGE')
			FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace AND p.proname = 'enqueue'`, tt.login, tt.role)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (may [6]bool, err error) {
			return may, row.Scan(&may[0], &may[1], &may[2], &may[3], &may[4], &may[5])
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := [6]bool{true, tt.enqueues, tt.reads, tt.updates, tt.inserts, tt.sees}; got != want {
			t.Errorf("%s: member, may enqueue, read, move open work, write intents, see sessions: %v, want %v", tt.login, got, want)
		}
	}
}
