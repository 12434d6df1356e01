package main

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, "enqueue", Main) }

func TestScripts(t *testing.T) { clitest.Run(t) }
