// Package demo runs the main job for everybody to see: a shop takes orders, workers
// charge, ship and mail, providers misbehave in every way the simulator knows, a worker
// is killed in the middle, and in the end the ledger is compared with what the providers
// counted.
//
// Everything is real: a private Postgres, provider and worker processes of their own,
// the shop's HTTP handler. The verdict is computed from the providers' ledger of
// effects, joined with ours; no number in it comes from a worker.
package demo
