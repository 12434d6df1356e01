// Command bench measures what the guarantee costs, and looks at the plans of the statements
// that move open work.
//
//	go run ./internal/bench figures  # docs/performance.md; make bench
//	go run ./internal/bench plans    # no statement may scan a table or sort a backlog
//
// Each starts a private Postgres with fsync on. The statements are read from the source of
// package dispatch, so that what is looked at is what runs.
package main
