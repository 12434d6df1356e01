// Package cli is what the commands have in common: configuration, logging, output, the
// database connection, and errors with a hint and an exit code.
//
// It holds no state between two runs: a command gets its world as an [Env], so that
// tests run it without a process of their own. It knows neither the worker nor any
// provider; docs/configuration.md and docs/cli.md are written from what stands here.
package cli
