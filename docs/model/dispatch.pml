/*
 * One committed intent, from release to settlement: the protocol of package dispatch.
 *
 * A statement of the ledger is one atomic step here, because it is one transaction there.
 * Between two steps anything may happen: another worker runs, this one is paused for as
 * long as you like, dies, its request is delayed, time passes. README.md says what is
 * modelled, what is not, and which step stands for which function.
 *
 * What to check is chosen when the checker runs, so that it is compiled once:
 *
 *	PROVIDER  what the provider promises: keys, lookup, proof, joined by "+"; or nothing
 *	WITHOUT   a guard to take out, or an assumption to drop: see the names below
 *	SENDS, ATTEMPTS, CRASHES, LOSSES, TICKS, HUMAN, CANCEL, DEADLINE   bounds and events
 */
c_decl {
	enum {
		nothing_out,
		/* guards of the protocol */
		claim_cas, permit_before_write, settle_fence, probe_fence, sticky_lease, sticky_probe,
		lag_wait, lag_from_last_send, straggler_check, straggler_check_after_resend, remembered_is_no_proof,
		replay_deadline, replay_deadline_at_write, unknown_taken_over, release_cas, release_lease, lease_sweep, probe_sweep,
		follow_key, follow_tx, follow_key_and_tx, follow_in_settlement,
		/* assumptions about the world */
		network_within_lag, pause_within_memory, operator_knows_stragglers,
		names
	};
	static const char *name[names] = {
		"",
		"claim_cas", "permit_before_write", "settle_fence", "probe_fence", "sticky_lease", "sticky_probe",
		"lag_wait", "lag_from_last_send", "straggler_check", "straggler_check_after_resend", "remembered_is_no_proof",
		"replay_deadline", "replay_deadline_at_write", "unknown_taken_over", "release_cas", "release_lease", "lease_sweep", "probe_sweep",
		"follow_key", "follow_tx", "follow_key_and_tx", "follow_in_settlement",
		"network_within_lag", "pause_within_memory", "operator_knows_stragglers"
	};
	static int without, keys, lookup, proof, max_sends, max_attempts, max_crashes, max_losses, max_ticks, max_human, cancel, deadline;

	static int bound(const char *which, int otherwise) {
		const char *s = getenv(which);
		return s != 0 && *s != 0 ? atoi(s) : otherwise;
	}
	__attribute__((constructor)) static void choose(void) {
		const char *s = getenv("PROVIDER"), *w = getenv("WITHOUT");
		if (s != 0) {
			keys = strstr(s, "keys") != 0;
			lookup = strstr(s, "lookup") != 0;
			proof = strstr(s, "proof") != 0;
		}
		while (w != 0 && *w != 0 && without < names && strcmp(name[without], w) != 0)
			without++;
		if (without == names) {
			fprintf(stderr, "no such guard or assumption: %s\n", w);
			exit(2);
		}
		max_sends = bound("SENDS", 2);
		max_attempts = bound("ATTEMPTS", 5);
		max_crashes = bound("CRASHES", 1);
		max_losses = bound("LOSSES", 1);
		max_ticks = bound("TICKS", 2);
		max_human = bound("HUMAN", 1);
		cancel = bound("CANCEL", 0);
		deadline = bound("DEADLINE", 0);
	}
}
#define KEYS       c_expr { keys }          /* it remembers our key for a tick at least and replays its answer */
#define LOOKUP     c_expr { lookup }        /* it can be asked by reference */
#define PROOF      c_expr { proof }         /* not found, after its lag, means not executed */
#define CANCEL     c_expr { cancel }
#define DEADLINE   c_expr { deadline }
#define WITH(g)    c_expr { without != g }
#define WITHOUT(g) c_expr { without == g }
#define NONE 9

mtype:state = { none, accepted, executing, retryable, unknown, review, exhausted, succeeded, failed, cancelled };
mtype:phase = { due, released, leased, asking, probing, following, parked, gone };
mtype:verdict = { nothing, yes, no, notsent, noanswer, found, absent, notproven, probed };

/* The outbox row. */
mtype:state st = accepted;
mtype:phase ph = due;
byte att = 0;            /* attempt: fences every later write */
byte sends = 0;
byte unk = 0;            /* unknown_attempt */
bool reported = false;   /* holder is null: whoever may have sent has reported, so no worker is about to write */
byte first = NONE;       /* first_sent_at */
bool resent = false;     /* the unknown attempt was a resend */
bool over = false;       /* next_at of a lease has passed */

mtype:state outcome = none;
byte followons = 0;
bool job = false;        /* a River job carries this attempt; it may run once, twice or late */

/* The provider and the way to it. */
byte effects = 0;
byte seen = NONE;        /* tick in which it remembered the key */
bool refuses = false;    /* it will refuse this request for good, whenever it comes */
byte orphans = 0;        /* requests on their way that nobody waits for any more */
byte armed[2] = NONE;    /* worker w may write and has not yet: tick of its permit */

byte now = 0;            /* ticks of one key memory */
bool late = false;       /* the intent's deadline has passed */
byte crashes, losses, human;

bool busy = false;       /* worker 0 is; worker 1 takes work only then: idle workers are alike */

#define REMEMBERED (KEYS && !late && now == first)
#define SETTLED    (outcome != none)
/* The lag has passed, and it covers a request on its way. It counts from the last send. */
#define LAGGED     (orphans == 0 || WITHOUT(network_within_lag) || (resent && WITHOUT(lag_from_last_send)))

/* What is settled stays settled, and says what is true. */
inline settle_as(o) {
	assert(!SETTLED);
	assert(o != succeeded || effects >= 1);
	assert(o == succeeded || effects == 0);
	outcome = o; st = o; unk = 0; printf("# the ledger says: "); printm(st); printf("\n")
}

/* A request reaches the provider. */
inline arrive(result) {
	if
	:: KEYS && seen != NONE && now <= seen + 1 -> result = yes    /* its saved answer */
	:: else ->
		if
		:: refuses -> result = no
		:: !refuses -> printf("# a request arrives that the provider will execute; effects before: %d\n", effects);
			assert(effects == 0);                                 /* one key, one effect */
			assert(!SETTLED || outcome == succeeded);             /* "it has not happened" is never wrong */
			assert(st != retryable && (st != exhausted || ph != parked)); /* a proof is a proof */
			effects++; seen = now; result = yes; printf("# THE EFFECT HAPPENS, tick %d\n", now)
		:: result = notsent                                       /* refused for now, not executed */
		fi
	fi
}

/* After a proof that it was not executed: due again, or attempts used up. */
inline again() {
	printf("# proven not executed: due again, or exhausted\n");
	unk = 0; resent = false; job = false;
	if
	:: c_expr { now.sends >= max_sends } -> st = exhausted; ph = parked
	:: else -> st = retryable; ph = due
	fi
}

inline succeed() {
	settle_as(succeeded);
	if
	:: WITH(follow_in_settlement) -> ph = following
	:: else -> ph = gone                                          /* the follow-on is this worker's next step */
	fi
}

#define FREE  a = 0; probe = false; sure = false; plan = nothing; v = nothing; rep = false; armed[w] = NONE; busy = (w == 0 -> false : busy)
#define DIE   crashes > 0 -> crashes--; printf("# worker %d dies\n", w); FREE; goto idle
#define DONE  FREE; goto idle

proctype worker(bit w) {
	byte a = 0;                       /* the attempt this worker is at */
	bool probe = false;               /* it asks what became of an earlier one */
	bool sure = false;                /* a lookup must show the effect that there was when the probe began */
	mtype:verdict plan = nothing;     /* what an absence allows: absent, a proof; noanswer, a resend */
	bool rep = false;                 /* when the probe began, everybody else had reported */
	mtype:verdict v = nothing;

idle:
	if
	/* load: the ticket is current. Another finds nothing. */
	:: atomic { job && (ph == due || ph == released) && (w == 0 || busy) && c_expr { now.att < max_attempts } ->
		a = att; busy = (w == 0 -> true : busy); goto claim }
	/* claimProbes */
	:: atomic { ph == asking && (w == 0 || busy) && c_expr { now.att < max_attempts } ->
		att++; ph = probing; over = false;
		a = att; probe = true; busy = (w == 0 -> true : busy);
		rep = reported;
		sure = (effects > 0) && LAGGED && WITH(lag_wait) && (WITH(lag_from_last_send) || !resent);
		if
		:: (REMEMBERED || (KEYS && !late && WITHOUT(replay_deadline))) && (LAGGED || !LOOKUP) &&
			(WITH(remembered_is_no_proof) || !PROOF) -> plan = noanswer
		:: LOOKUP && PROOF && (LAGGED || WITHOUT(lag_wait)) &&
			((reported && !REMEMBERED) || (REMEMBERED && WITHOUT(remembered_is_no_proof)) || WITHOUT(straggler_check)) -> plan = absent
		:: else -> plan = nothing
		fi;
		goto ask }
	/* followOnce */
	:: atomic { ph == following && (w == 0 || busy) && WITH(follow_tx) && WITH(follow_key_and_tx) ->
		assert(followons == 0 || WITHOUT(follow_key));
		followons = 1; ph = gone; goto idle }
	:: atomic { ph == following && (w == 0 || busy) && (WITHOUT(follow_tx) || WITHOUT(follow_key_and_tx)) ->
		followons = (WITHOUT(follow_key_and_tx) -> followons + 1 : 1);
		assert(followons == 1);
		busy = (w == 0 -> true : busy);
		goto followed }
	fi;

claim:
	if
	:: atomic {
		if
		:: ((st == accepted || st == retryable) && att == a && !late) || (WITHOUT(claim_cas) && !SETTLED) ->
			att = a + 1; sends++; st = executing; ph = leased; over = false; reported = false; job = false;
			first = (first == NONE -> now : first);
			a = att; printf("# worker %d claims attempt %d, tick %d\n", w, a, now)
		:: else -> DONE
		fi }
	:: atomic { DIE }
	fi;

permit:
	if
	:: atomic {
		if
		:: ((att == a && !over && (st == executing || (probe && ph == probing))) || WITHOUT(permit_before_write)) &&
			!late &&
			(!probe || REMEMBERED || WITHOUT(replay_deadline) || WITHOUT(replay_deadline_at_write)) ->
			armed[w] = now; printf("# worker %d may write attempt %d, tick %d\n", w, a, now)
		:: else -> v = notsent; printf("# worker %d may not write attempt %d\n", w, a); goto settle
		fi }
	:: atomic { v = notsent; printf("# worker %d: dial refused\n", w); goto settle }                          /* the dial is refused */
	:: atomic { DIE }
	fi;

write:
	if
	:: atomic { armed[w] = NONE; printf("# worker %d writes attempt %d\n", w, a); arrive(v) }
	:: atomic { armed[w] = NONE; printf("# worker %d writes attempt %d, and hears nothing\n", w, a); arrive(v); v = noanswer }          /* the answer is lost */
	:: atomic { armed[w] = NONE; printf("# worker %d writes attempt %d, which is delayed\n", w, a); orphans++; v = noanswer }          /* the request is delayed, or lost */
	:: atomic { DIE }
	fi;

settle:
	if
	/* What does not come from the provider's memory of the key decides nothing. */
	:: atomic { probe ->
		if
		:: v == yes || v == no -> skip
		:: v == notsent && WITHOUT(sticky_probe) -> v = absent
		:: else ->
			if
			:: c_expr { now.att < max_attempts } -> v = probed
			:: v = notproven                                        /* the time for asking is over */
			fi
		fi;
		rep = rep || WITHOUT(straggler_check_after_resend);         /* it has reported: for itself only */
		plan = yes;
		goto learn }
	:: atomic { !probe ->
		if
		:: (st == executing && att == a) ||
			(st == unknown && unk == a && v != noanswer) ||
			(st == review && unk == a && v == yes) ||
			(WITHOUT(settle_fence) && st == executing) ->
			printf("# worker %d reports of attempt %d: ", w, a); printm(v); printf("\n");
			if
			:: v == yes -> succeed()
			:: v == no -> settle_as(failed); ph = gone
			:: v == notsent ->
				again()
			:: v == noanswer -> st = unknown; ph = asking; unk = a; reported = true; resent = false
			fi;
			if
			:: v == yes && WITHOUT(follow_in_settlement) -> goto followed
			:: else -> DONE
			fi
		:: else ->
			reported = (st == unknown && unk == a && v == noanswer -> true : reported);
			if :: v == yes -> goto contradict :: else -> DONE fi
		fi }
	:: atomic { DIE }
	fi;

contradict:
	if
	:: atomic {
		if
		:: st == retryable || (st == exhausted && ph == parked) -> st = review; ph = parked; unk = a
		:: else
		fi;
		DONE }
	:: atomic { DIE }
	fi;

ask:
	if
	:: atomic { LOOKUP ->
		if
		:: effects > 0 -> v = found
		:: !sure && plan == noanswer -> goto resend
		:: !sure && plan == absent -> v = absent
		:: c_expr { now.att < max_attempts } -> v = probed          /* nothing that decides, or no answer */
		:: v = notproven
		fi;
		goto learn }
	:: atomic { !LOOKUP ->
		if :: plan == noanswer -> goto resend :: else -> v = notproven; goto learn fi }
	:: atomic { DIE }
	fi;

resend:
	if
	:: atomic {
		if
		:: st == unknown && ph == probing && att == a ->
			sends++; over = false; reported = false; resent = true;
			unk = (WITHOUT(unknown_taken_over) -> unk : a);
			printf("# worker %d resends as attempt %d, tick %d\n", w, a, now);
			goto permit
		:: else -> DONE
		fi }
	:: atomic { DIE }
	fi;

learn:
	if
	:: atomic {
		if
		:: (st == unknown && ((ph == probing && att == a) || WITHOUT(probe_fence))) ||
			((st == unknown || st == review) && unk == a && v == yes) ->
			printf("# worker %d asked as attempt %d and learnt: ", w, a); printm(v); printf("\n");
			if
			:: v == yes || v == found -> succeed()
			:: v == no -> settle_as(failed); ph = gone
			:: v == absent -> again()
			:: v == notproven -> st = review; ph = parked
			:: v == probed -> ph = asking; reported = (plan == yes -> rep : reported)
			fi;
			if
			:: outcome == succeeded && WITHOUT(follow_in_settlement) -> goto followed
			:: else -> DONE
			fi
		:: else ->
			if :: v == yes || v == found -> goto contradict :: else -> DONE fi
		fi }
	:: atomic { DIE }
	fi;

followed:
	if
	:: atomic { followons = (WITHOUT(follow_in_settlement) -> 1 : followons); ph = gone; DONE }
	:: atomic { DIE }
	fi
}

/* Releaser and sweeper: what the ledger's times bring round, whatever the workers do. */
proctype ledger() {
	bool picked = false;               /* of a release without its compare-and-set */
	do
	:: atomic { ph == due && !job && WITH(release_cas) ->
		ph = released; over = false;
		if :: job = true :: losses > 0 -> losses-- fi }
	:: atomic { ph == due && !picked && WITHOUT(release_cas) -> picked = true; job = true }
	:: atomic { picked -> picked = false; ph = released; over = false }
	:: atomic { ph == released && (!job || losses > 0) && WITH(release_lease) ->
		losses = (job -> losses - 1 : losses);
		ph = due }
	:: atomic { (ph == leased || ph == probing) && !over -> over = true }
	:: atomic { ph == leased && over && WITH(lease_sweep) ->
		if
		:: WITH(sticky_lease) -> printf("# lease of attempt %d expired: outcome unknown\n", att); st = unknown; ph = asking; unk = att; resent = false
		:: else -> again()
		fi }
	:: atomic { ph == probing && over && WITH(probe_sweep) -> ph = asking }
	:: atomic { (st == accepted || st == retryable) && late -> settle_as(failed); ph = gone }
	od
}

/* Network, provider and time. */
proctype world() {
	mtype:verdict r;
	do
	:: atomic { orphans > 0 -> orphans--; printf("# a delayed request arrives\n"); arrive(r); r = nothing }
	:: atomic { orphans > 0 -> orphans-- }
	:: atomic { KEYS && c_expr { now.now < max_ticks } && first != NONE && orphans == 0 &&
		(WITHOUT(pause_within_memory) || ((armed[0] == NONE || now <= armed[0]) && (armed[1] == NONE || now <= armed[1]))) ->
		now++; printf("# time passes: tick %d\n", now) }
	:: atomic { DEADLINE && !late -> late = true }
	od
}

/* Operators, and callers who withdraw or supersede. */
proctype people() {
	do
	:: atomic { CANCEL && (st == accepted || st == retryable) -> settle_as(cancelled); ph = gone }
	:: atomic { CANCEL && st == exhausted && ph == parked -> assert(effects == 0); outcome = exhausted; ph = gone }
	:: atomic { st == exhausted && ph == parked && human > 0 -> human--; job = false; sends = 0; printf("# an operator replays it\n"); st = retryable; ph = due }
	:: atomic { st == review && effects > 0 -> succeed() }
	:: atomic { st == review && effects == 0 &&
		((orphans == 0 && armed[0] == NONE && armed[1] == NONE) || WITHOUT(operator_knows_stragglers)) ->
		if
		:: settle_as(failed); ph = gone
		:: human > 0 -> human--; again()
		fi }
	od
}

/* Nothing is lost: where nothing moves any more, the intent has its end. */
proctype monitor() {
	timeout ->
	assert(SETTLED || st == exhausted || c_expr { now.att >= max_attempts });
	assert(outcome != succeeded || (followons == 1 && ph == gone && effects == 1));
	assert(!SETTLED || outcome == succeeded || effects == 0)
}

init {
	atomic {
		crashes = c_expr { max_crashes }; losses = c_expr { max_losses }; human = c_expr { max_human };
		if :: refuses = false :: refuses = true fi;
		run worker(0); run worker(1); run ledger(); run world(); run people(); run monitor()
	}
}
