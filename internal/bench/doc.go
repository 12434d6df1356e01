// Command bench measures what the guarantee costs, compares shapes of the ledger, and looks
// at the plans of the statements that move open work.
//
//	go run ./internal/bench figures  # docs/performance.md; make bench
//	go run ./internal/bench shapes   # the figures of docs/adr/0001
//	go run ./internal/bench plans    # no statement may scan a table or sort a backlog
//
// Each starts a private Postgres with fsync on. The statements of our own shape are read
// from the source of package dispatch, so that what is measured is what runs; those of
// the shape that was rejected are in executions.sql. There is no River and no provider
// here: a job is a batch of tickets, and every call succeeds at once. Shapes take turns
// within a round, and only their ratio within one run means anything.
package main
