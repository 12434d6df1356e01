package dispatch

// MinConns is the smallest Config.Pool that New takes: a connection each to load, to
// claim and to settle, and one for all the rest. A worker on so few works, because nothing
// waits for a connection while it holds one, but under load its statements wait for each
// other, and an answer may wait for longer than its lease.
const MinConns = 4

// ListenConns is how many connections a worker opens beside its pool, to hear of new work
// from enqueue and from River. None with PollOnly.
const ListenConns = 2

// BusyConns is how many connections of its pool a worker of that many lanes uses at once
// under load: one for each statement that loads, claims or settles, two a lane, to
// release and to fetch what was released, one to complete River's jobs, and one for what
// happens now and then (to ask, to sweep, to follow on, to forget, to refresh). With fewer
// it works, and more slowly. Effects of a Local provider come on top, as many as run at
// once.
func BusyConns(lanes int) int { return 3*batchLines + 2*lanes + 2 }

// ListenSQL is what a worker's listening session has sent last. There is one a worker, so
// that pg_stat_activity tells how many run, but for those with PollOnly.
const ListenSQL = "LISTEN outbox_due"
