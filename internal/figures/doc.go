// Package figures measures what the guarantee costs: each figure beside its baseline, on
// the same database, in the same run, turn by turn, so that their ratio says something on
// a busy machine too. docs/performance.md tells what each figure is and what dominates it.
//
// It is no test: nothing here checks that effects happen once. But what it measures is
// what runs: the door of package outbox, the worker of package dispatch with its default
// batches, fsync and synchronous_commit on, full history, the claim committed before the
// call.
package figures
