// Command mutants takes the guards away, one at a time, and sees that a test goes red.
//
//	go run ./internal/mutants             # all of them
//	go run ./internal/mutants fence pins  # those whose guard has one of these words
//	go run ./internal/mutants -list
//
// The guards are in guards.go: what each protects, the one line that removes it, and the
// test that notices. It fails if a mutant survives, if the text that it replaces is not
// found exactly once, or if a test is not green without it. The tree is not touched: the
// go command is given the changed file in an overlay. `make mutants` does it on one private
// Postgres for all.
package main
