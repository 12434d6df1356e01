package main

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/clitest"
)

func TestDocsHaveTheCommand(t *testing.T) {
	clitest.Section(t, "cli.md", "enqueue", clitest.Reference(newApp(cli.Env{}).Root))
}
