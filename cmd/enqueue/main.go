// Command enqueue records intents from a shell: one from flags, or thousands from a
// file. It uses the same door as applications do, package outbox, so that all of its
// promises hold here: asking again is always safe and brings the first answer.
package main

import (
	"context"
	"os"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func main() {
	ctx, env := cli.Process()
	os.Exit(int(Main(ctx, env)))
}

// Main runs the program until it is done or ctx ends.
func Main(ctx context.Context, env cli.Env) cli.ExitCode {
	return newApp(env).Run(ctx)
}
