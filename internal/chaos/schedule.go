package chaos

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is what is done to the system.
type Kind string

const (
	Kill          Kind = "kill"             // SIGKILL at any moment
	KillAt        Kind = "kill_at_point"    // SIGKILL at a named point of an attempt
	Pause         Kind = "pause"            // SIGSTOP for longer than the lease
	PauseAt       Kind = "pause_at_point"   // the same at a named point
	Stop          Kind = "stop"             // SIGTERM
	Restart       Kind = "restart_database" // an immediate shutdown, which is a crash
	Promote       Kind = "promote_standby"  // the primary crashes, its synchronous standby takes over
	CutDatabase   Kind = "cut_database"     // every connection is reset
	CutProvider   Kind = "cut_provider"
	DelayDatabase Kind = "delay_database" // every packet is late
	DelayProvider Kind = "delay_provider"
	MuteDatabase  Kind = "mute_database" // answers are lost, those to COMMIT included; then a cut
	LoseCommits   Kind = "lose_commits"  // the answer to each COMMIT, and the connection
	MuteProvider  Kind = "mute_provider"
)

// How long faults last. A request may be in the network for maxDelay, and at the provider
// for slowProvider, after its sender has gone: lookupLag covers both many times over.
const (
	minPause       = lease + time.Second
	pauseSpread    = 4 * time.Second
	maxDelay       = 400 * time.Millisecond
	maxMute        = 600 * time.Millisecond
	maxReplaceTime = 2 * time.Second
)

// kinds in the order of the report. Each is in it as often as it should be drawn.
var kinds = []Kind{
	Kill, Kill, KillAt, KillAt, KillAt, Pause, PauseAt, PauseAt, Stop, Restart, Promote,
	CutDatabase, CutProvider, DelayDatabase, DelayProvider, MuteDatabase, LoseCommits, LoseCommits, MuteProvider,
}

// event is one fault of the schedule.
type event struct {
	kind   Kind
	after  int           // effects at the providers
	late   time.Duration // and so much later, to hit any moment
	worker int
	point  string
	span   time.Duration // of a pause, a delay, a silence, or until a worker is replaced
}

// schedule draws n faults over a run of so many effects. The same seed draws the same. Of
// n faults every kind is among the first ones, so that a short run has them all.
func schedule(seed uint64, n, effects int) []event {
	chance := rand.New(rand.NewPCG(seed, 1))
	draw := func(d time.Duration) time.Duration { return time.Duration(chance.Int64N(int64(d))) }
	once := slices.Compact(slices.Clone(kinds))
	chance.Shuffle(len(once), func(i, j int) { once[i], once[j] = once[j], once[i] })
	events := make([]event, n)
	for i := range events {
		e := event{kind: kinds[chance.IntN(len(kinds))]}
		if i < len(once) {
			e.kind = once[i]
		}
		e.after = effects/50 + chance.IntN(max(effects*8/10, 1))
		e.late = draw(50 * time.Millisecond)
		e.worker, e.point = chance.IntN(workers), points[chance.IntN(len(points))]
		switch e.kind {
		case Pause, PauseAt:
			e.span = minPause + draw(pauseSpread)
		case DelayDatabase, DelayProvider:
			e.span = time.Second + draw(2*time.Second)
		case MuteDatabase, MuteProvider, LoseCommits:
			e.span = 100*time.Millisecond + draw(maxMute)
		default:
			e.span = draw(maxReplaceTime)
		}
		events[i] = e
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.after - b.after })
	return events
}
