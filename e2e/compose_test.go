package e2e_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
)

func composeProject(t *testing.T) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithWorkingDirectory(".."), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	return project
}

func TestComposeServices(t *testing.T) {
	t.Parallel()
	want := []string{"catalog", "mailpit", "migrate", "postgres", "shop", "simulator", "worker"}
	if got := composeProject(t).ServiceNames(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("services %v, want %v", got, want)
	}
}

// Whoever starts it on a laptop in a café offers a Postgres and a shop to nobody.
func TestComposePortsAreOnLoopback(t *testing.T) {
	t.Parallel()
	ports := 0
	for name, s := range composeProject(t).Services {
		for _, p := range s.Ports {
			ports++
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is bound to %q", name, p.Published, p.HostIP)
			}
		}
		if s.NetworkMode == "host" {
			t.Errorf("%s is in the host's network", name)
		}
	}
	if ports == 0 {
		t.Error("no port is published, so there is nothing to look at")
	}
}

func TestComposeImagesArePinned(t *testing.T) {
	t.Parallel()
	project := composeProject(t)
	built := map[string]bool{}
	for name, s := range project.Services {
		if s.Build != nil {
			built[s.Image] = true
			if !slices.Contains(dockerTargets(t), s.Build.Target) {
				t.Errorf("%s: the Dockerfile has no target %q", name, s.Build.Target)
			}
		}
	}
	for name, s := range project.Services {
		_, tag, _ := strings.Cut(s.Image, ":")
		if tag == "" || tag == "latest" {
			t.Errorf("%s: image %q has no tag that says what it is", name, s.Image)
		}
		if ours := strings.HasPrefix(s.Image, "outbox-worker:"); ours != built[s.Image] {
			t.Errorf("%s: image %s: ours %v, built here %v", name, s.Image, ours, built[s.Image])
		}
	}
}

func dockerTargets(t *testing.T) (targets []string) {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "FROM" && f[2] == "AS" {
			targets = append(targets, f[3])
		}
	}
	return targets
}

func TestComposeOrder(t *testing.T) {
	t.Parallel()
	project := composeProject(t)
	tests := []struct{ service, on, condition, why string }{
		{"migrate", "postgres", types.ServiceConditionHealthy, "it needs a server that answers"},
		{"catalog", "migrate", types.ServiceConditionCompletedSuccessfully, "it writes into the schema"},
		{"worker", "catalog", types.ServiceConditionCompletedSuccessfully, "it serves the lanes that it finds"},
		{"worker", "simulator", types.ServiceConditionHealthy, "its calls would only be refused"},
		{"worker", "mailpit", types.ServiceConditionHealthy, "its mails would only be refused"},
		{"shop", "catalog", types.ServiceConditionCompletedSuccessfully, "it refuses to start without a ledger"},
	}
	for _, tt := range tests {
		d, ok := project.Services[tt.service].DependsOn[tt.on]
		if !ok || d.Condition != tt.condition {
			t.Errorf("%s depends on %s: %q, want %q: %s", tt.service, tt.on, d.Condition, tt.condition, tt.why)
		}
	}
	for name, s := range project.Services {
		once := name == "migrate" || name == "catalog"
		if once && (s.HealthCheck != nil || s.Restart != "no") {
			t.Errorf("%s runs once: restart %q", name, s.Restart)
		}
		if !once && (s.HealthCheck == nil || s.Restart != types.RestartPolicyUnlessStopped) {
			t.Errorf("%s goes on: restart %q, health check %v", name, s.Restart, s.HealthCheck)
		}
	}
}

func TestComposeMountsExist(t *testing.T) {
	t.Parallel()
	for name, s := range composeProject(t).Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			info, err := os.Stat(v.Source)
			if err != nil || !info.Mode().IsRegular() || !v.ReadOnly {
				t.Errorf("%s: %s: a file to read? %v (read-only %v)", name, v.Source, err, v.ReadOnly)
			}
		}
	}
}

// Calls in flight may finish: the container's grace is longer than the worker's.
func TestComposeStopsGracefully(t *testing.T) {
	t.Parallel()
	grace := composeProject(t).Services["worker"].StopGracePeriod
	if grace == nil {
		t.Fatal("the worker has no stop_grace_period, so it is killed after 10 s")
	}
	checkGrace(t, stopTimeout(t, "../deploy/compose/outbox-worker.yaml"), duration(*grace))
}

func TestComposeCommandsExist(t *testing.T) {
	t.Parallel()
	bin := program(t)
	commands := 0
	for name, s := range composeProject(t).Services {
		if strings.HasPrefix(s.Image, "outbox-worker:") && len(s.Entrypoint) == 0 {
			commands++
			checkCommand(t, bin, name, s.Command)
		}
		if s.HealthCheck != nil && len(s.HealthCheck.Test) > 1 && s.HealthCheck.Test[1] == "outbox-worker" {
			commands++
			checkCommand(t, bin, name, s.HealthCheck.Test[2:])
		}
	}
	if commands < 5 {
		t.Errorf("only %d commands of ours were found", commands)
	}
}

// The commands of docker-compose.yml, in their order, on a real database: the health check
// of the worker then knows every lane's provider and every operation.
func TestComposeSetsUpWhatTheWorkerServes(t *testing.T) {
	t.Parallel()
	bin, project := program(t), composeProject(t)
	env := append(cleanEnv(), "DATABASE_URL="+pgtest.EmptyURL(t))
	at := func(container string) string { // the file that is mounted there
		for _, s := range project.Services {
			for _, v := range s.Volumes {
				if v.Target == container {
					return v.Source
				}
			}
		}
		return container
	}
	for _, name := range []string{"migrate", "catalog", "worker"} {
		s := project.Services[name]
		args := slices.Clone([]string(s.Command))
		if name == "worker" {
			args = s.HealthCheck.Test[2:]
		}
		for i := range args {
			args[i] = at(args[i])
		}
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Env = env
		for key, value := range s.Environment {
			if key != "DATABASE_URL" && value != nil {
				cmd.Env = append(cmd.Env, key+"="+at(*value))
			}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %v\n%s", name, args, err, out)
		}
	}
}
