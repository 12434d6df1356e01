package main

// guards in the order of an intent's life. Choose a text that is as short as it can be and
// still found once, and the fastest test that notices.
var guards = []guard{
	// Enqueue: one key, one intent.
	{
		name: "unique key", file: "migrations/sql/00001_ledger.sql",
		old: "CONSTRAINT intents_reference_key UNIQUE (reference)", new: "CONSTRAINT intents_reference_key UNIQUE (reference, id)",
		test: "./outbox TestEveryWayGivesEveryAnswer",
	},
	{
		name: "digest check: another payload is a conflict", file: "migrations/sql/00003_enqueue.sql",
		old: "CASE WHEN i.digest <> repeat_of.digest THEN 'conflict' WHEN", new: "CASE WHEN",
		test: "./outbox TestConflictNamesEachDifferingField",
	},
	{
		name: "digest check: a digest that is not the payload's is refused", file: "migrations/sql/00003_enqueue.sql",
		old: "ELSIF p.digest <> sha256(convert_to(canonical, 'UTF8')) THEN", new: "ELSIF false THEN",
		test: "./outbox TestBadInputThatOnlySQLCanGiveIsRefused",
	},
	{
		name: "tenant scope of a key", file: "migrations/sql/00003_enqueue.sql",
		old: "ledger_part || int4send(octet_length(tenant)) || convert_to(tenant, 'UTF8') || name_part", new: "ledger_part || name_part",
		test: "./outbox TestWhatSeparatesKeys",
	},
	{
		name: "tenant scope of a status", file: "migrations/sql/00003_enqueue.sql",
		old: "WHERE i.reference = answer_of.reference AND i.tenant = answer_of.tenant;", new: "WHERE i.reference = answer_of.reference;",
		test: "./outbox TestGetTellsTheTenantAndNobodyElse",
	},
	{
		name: "versions of an operation share a key", file: "migrations/sql/00001_ledger.sql",
		old: "outbox.part(CASE WHEN key_version THEN operation ELSE name END)", new: "outbox.part(operation)",
		test: "./outbox TestWhatSeparatesKeys",
	},
	{
		name: "parts of a reference have their length before them", file: "outbox/reference.go",
		old: "h.Write(length[:])", new: "_ = length",
		test: "./outbox TestReferencesAreDerivedAlikeInGoAndSQL",
	},
	{
		name: "a window slides from its first intent", file: "migrations/sql/00003_enqueue.sql",
		old: "IF clock_timestamp() >= head.started_at + p.window_length THEN", new: "IF true THEN",
		test: "./outbox TestAWindowHasNoEdge",
	},
	{
		name: "a window stays shut until its intent is settled", file: "migrations/sql/00003_enqueue.sql",
		old: "IF latest.settled_at IS NOT NULL", new: "IF true",
		test: "./outbox TestAnOldWindowStaysShutUntilItIsSettled",
	},
	{
		name: "only what did not happen is superseded", file: "migrations/sql/00003_enqueue.sql",
		old: "WHEN old.state NOT IN ('failed_final', 'cancelled', 'exhausted') OR", new: "WHEN",
		test: "./outbox TestWhatCanBeSuperseded",
	},
	{
		name: "what is in review is not superseded", file: "migrations/sql/00003_enqueue.sql",
		old: "WHEN old.state NOT IN ('failed_final', 'cancelled', 'exhausted') OR old.review_since IS NOT NULL THEN", new: "WHEN old.state NOT IN ('failed_final', 'cancelled', 'exhausted') THEN",
		test: "./outbox TestWhatIsInReviewIsNotSuperseded",
	},
	{
		name: "only a success is compensated", file: "migrations/sql/00003_enqueue.sql",
		old: "AND e.state = 'succeeded'\n        WHERE i.reference = r.compensates", new: "\n        WHERE i.reference = r.compensates",
		test: "./outbox TestACompensationIsTiedToWhatItUndoes",
	},
	{
		name: "bulks take keys in one order", file: "migrations/sql/00003_enqueue.sql",
		old: "FROM firsts f ORDER BY f.scope", new: "FROM firsts f ORDER BY f.ordinality",
		test: "./outbox TestBulksInOppositeOrdersDoNotDeadlock",
	},

	// The ledger keeps facts, and its rows make sense.
	{
		name: "facts are not rewritten", file: "migrations/sql/00001_ledger.sql",
		old: "IF current_user = 'outbox_retention' THEN", new: "IF true THEN",
		test: "./outbox TestFactsAreNotRewritten",
	},
	{
		name: "the history takes the machine's transitions only", file: "migrations/sql/00001_ledger.sql",
		old: "CONSTRAINT history_transition_legal CHECK (outbox.legal(from_state, event, to_state, claimed_at))", new: "CONSTRAINT history_transition_legal CHECK (true)",
		test: "./outbox TestTheHistoryTakesOnlyTheMachinesTransitions",
	},
	{
		name: "an attempt that ends says when it was claimed", file: "migrations/sql/00001_ledger.sql",
		old: "IF (claimed_at IS NOT NULL) <> (from_state = 'executing' AND to_state <> 'executing') THEN", new: "IF false THEN",
		test: "./outbox TestTheHistoryTakesOnlyTheMachinesTransitions",
	},
	{
		name: "an outbox row contradicts itself nowhere", file: "migrations/sql/00001_ledger.sql",
		old: "ADD CONSTRAINT outbox_fits CHECK (outbox.fits(outbox))", new: "ADD CONSTRAINT outbox_fits CHECK (true)",
		test: "./outbox TestAnOutboxRowContradictsItselfNowhere",
	},
	{
		name: "no answer leads to unknown: the machine", file: "outbox/state.go",
		old: "NoAnswer:         OutcomeUnknown,", new: "NoAnswer:         FailedRetryable,",
		test: "./outbox TestTheMachineIsOne",
	},

	// Release and claim: one worker sends, and it may.
	{
		name: "one replica releases for a lane", file: "dispatch/release.go",
		old: "FOR UPDATE SKIP LOCKED`\n\n// releaseSQL", new: "`\n\n// releaseSQL",
		test: "./dispatch TestOneReplicaAtATimeReleasesForALane",
	},
	{
		name: "a lane's concurrency", file: "dispatch/release.go",
		old: "o.phase IN ('released', 'leased')) AS room", new: "o.phase IN ('parked')) AS room",
		test: "./dispatch TestAReleaseTakesWhatTheLaneHasRoomForAndNoMore",
	},
	{
		name: "a lane's rate", file: "dispatch/release.go",
		old: "CASE WHEN rate IS NULL THEN room ELSE floor(tokens)::int END", new: "room",
		test: "./dispatch TestARateIsSharedByAllReplicas",
	},
	{
		name: "a release in a ledger that has moved", file: "dispatch/release.go",
		old: "AND (SELECT outbox.at_home())\nFOR UPDATE", new: "\nFOR UPDATE",
		test: "./dispatch TestOffItsTimelineNothingIsReleasedAndNothingClaimed",
	},
	{
		name: "a claim in a ledger that has moved", file: "dispatch/claim.go",
		old: " AND (SELECT outbox.at_home())", new: "",
		test: "./dispatch TestOffItsTimelineNothingIsReleasedAndNothingClaimed",
	},
	{
		name: "claim compares the attempt", file: "dispatch/claim.go",
		old: "WHERE o.intent_id = s.id AND o.attempt = s.attempt AND o.state IN ('accepted', 'failed_retryable') AND (SELECT", new: "WHERE o.intent_id = s.id AND o.state IN ('accepted', 'failed_retryable') AND (SELECT",
		test: "./dispatch TestAClaimComparesBeforeItSets",
	},
	{
		name: "claim compares the state", file: "dispatch/claim.go",
		old: "AND o.attempt = s.attempt AND o.state IN ('accepted', 'failed_retryable') AND (SELECT", new: "AND o.attempt = s.attempt AND (SELECT",
		test: "./dispatch TestAClaimComparesBeforeItSets",
	},
	{
		name: "claim compares the deadline", file: "dispatch/claim.go",
		old: "AND (o.deadline IS NULL OR o.deadline > clock_timestamp())", new: "",
		test: "./dispatch TestAClaimComparesBeforeItSets",
	},
	{
		name: "claim compares the pins", file: "dispatch/claim.go",
		old: "AND (o.account IS NULL OR (o.account = s.account AND o.preset = s.preset AND o.request_hash = s.hash))", new: "",
		test: "./dispatch TestAClaimComparesBeforeItSets",
	},
	{
		name: "a claim waits for nobody", file: "dispatch/claim.go",
		old: "FOR UPDATE SKIP LOCKED", new: "FOR UPDATE",
		test: "./dispatch TestAClaimWaitsForNobody",
	},
	{
		name: "claims are durable whatever the session says", file: "dispatch/store.go",
		old: "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')", new: "CASE WHEN false",
		test: "./dispatch TestWhatASessionSaysMakesNoCommitLessDurable",
	},
	{
		name: "a ticket that two jobs carry is one candidate's", file: "dispatch/claim.go",
		old: "delete(left, c.ticket)", new: "",
		test: "./dispatch TestAWonTicketBelongsToOneCandidateAtThatAttempt",
	},
	{
		name: "pins: account", file: "dispatch/claim.go",
		old: "case *p.account != account:", new: "case false:",
		test: "./dispatch TestPinsHoldAccountPresetAndRequest",
	},
	{
		name: "pins: preset", file: "dispatch/claim.go",
		old: "case *p.preset != preset:", new: "case false:",
		test: "./dispatch TestPinsHoldAccountPresetAndRequest",
	},
	{
		name: "pins: request", file: "dispatch/claim.go",
		old: "case string(p.hash) != string(hash):", new: "case false:",
		test: "./dispatch TestPinsHoldAccountPresetAndRequest",
	},
	{
		name: "input is checked before it is sent", file: "dispatch/job.go",
		old: "return end(outbox.InputRejected, \"input_invalid\", bad.Error())", new: "",
		test: "./dispatch TestWhatBreaksTheSchemaIsRefusedUnsentAndHoldsUpNobody",
	},

	// The call: what is proven decides.
	{
		name: "lease is checked again before the write", file: "dispatch/call.go",
		old: "case passed >= lease:", new: "case passed >= 24*lease:",
		test: "./dispatch TestAPermitRefusesByEitherClock",
	},
	{
		name: "deadline is checked again before the write", file: "dispatch/call.go",
		old: "case !c.expires.IsZero() &&", new: "case c.expires.IsZero() && !c.expires.IsZero() &&",
		test: "./dispatch TestAPermitRefusesByEitherClock",
	},
	{
		name: "no answer is unknown", file: "dispatch/verdict.go",
		old: "v.event = outbox.NoAnswer", new: "v.event = outbox.NotSent",
		test: "./dispatch TestWhatAnAnswerMeans",
	},
	{
		name: "a panic while sending is unknown", file: "dispatch/call.go",
		old: "answer = providers.Unknown(\"provider_panic\", fmt.Sprint(p))", new: "answer = providers.NotSent(\"provider_panic\", fmt.Sprint(p), 0)",
		test: "./dispatch TestASendPanicIsAnUnknownOutcomeOfItsIntentAlone",
	},
	{
		name: "one send is one request", file: "providers/httpjson/gate.go",
		old: "case a.carrier != nil, a.denied != nil:", new: "case a.denied != nil:",
		test: "./providers/httpjson TestAnAttemptIsOnOneConnectionOnly",
	},
	{
		name: "nothing is written without the permit", file: "providers/httpjson/gate.go",
		old: "if a.denied = a.permit(); a.denied != nil {", new: "if a.denied = nil; a.denied != nil {",
		test: "./providers/httpjson TestADeniedPermitLeavesNothingAtTheServer",
	},
	{
		name: "a redirect is unknown", file: "providers/httpjson/classify.go",
		old: "case r.status/100 == 3:", new: "case r.status/100 == 3 && false:",
		test: "./providers/httpjson TestWhatEachAnswerProves",
	},
	{
		name: "an answer about the key is no refusal", file: "providers/httpjson/classify.go",
		old: "return strings.Contains(c, \"idempoten\") || ", new: "return ",
		test: "./providers/httpjson TestWhatEachAnswerProves",
	},

	// Settlement: nothing overwrites what is newer.
	{
		name: "settlement is fenced on the attempt", file: "dispatch/settle.go",
		old: "WHEN o.state = 'executing' THEN NOT s.probe AND o.attempt = s.attempt", new: "WHEN o.state = 'executing' THEN NOT s.probe",
		test: "./dispatch TestASettlementIsFenced",
	},
	{
		name: "settlement is fenced on the unknown attempt", file: "dispatch/settle.go",
		old: "WHEN o.state = 'outcome_unknown' AND o.unknown_attempt = s.attempt\n", new: "WHEN o.state = 'outcome_unknown'\n",
		test: "./dispatch TestASettlementIsFenced",
	},
	{
		name: "a review is ended by the unknown attempt's success only", file: "dispatch/settle.go",
		old: "WHEN o.state = 'needs_review' THEN o.unknown_attempt = s.attempt AND s.to_state = 'succeeded'", new: "WHEN o.state = 'needs_review' THEN o.unknown_attempt = s.attempt",
		test: "./dispatch TestASettlementIsFenced",
	},
	{
		name: "a probe is fenced on its lease", file: "dispatch/settle.go",
		old: "AND s.probe AND o.phase = 'probing' AND o.attempt = s.attempt THEN true", new: "AND s.probe THEN true",
		test: "./dispatch TestASettlementIsFenced",
	},
	{
		name: "one settlement an intent in a statement", file: "dispatch/settle.go",
		old: "seen[s.ID]++", new: "",
		test: "./dispatch TestALateAnswerAndAProbesAreTakenOneAfterTheOther",
	},
	{
		name: "an answer that the database refuses holds up no other", file: "dispatch/settle.go",
		old: "case refusedData(err):", new: "case false:",
		test: "./dispatch TestAnAnswerThatTheDatabaseRefusesHoldsUpNoOther",
	},
	{
		name: "a local effect commits with its outcome", file: "dispatch/local.go",
		old: "won, err := w.claim(ctx, tx, []*candidate{c})", new: "won, err := w.claim(ctx, w.cfg.Pool, []*candidate{c})",
		test: "./dispatch TestALocalEffectIsThereIfAndOnlyIfTheLedgerSaysSo",
	},
	{
		name: "a contradiction opens a review", file: "dispatch/contradict.go",
		old: "WHERE e.state <> 'succeeded' OR e.provider_id <> s.provider_id", new: "WHERE false",
		test: "./dispatch TestALateSuccessThatContradictsTheLedgerOpensAReview",
	},
	{
		name: "a contradiction stops what was about to be sent", file: "dispatch/contradict.go",
		old: "AND old.state IN ('failed_retryable', 'exhausted')", new: "AND false",
		test: "./dispatch TestALateSuccessThatContradictsTheLedgerOpensAReview",
	},

	// Unknown: asked about, and only evidence ends it.
	{
		name: "a lease that ran out is unknown", file: "dispatch/sweep.go",
		old: "'leased' AND o.next_at <= (SELECT clock_timestamp())\n", new: "'leased' AND false\n",
		test: "./dispatch TestWhateverRanOutIsSwept",
	},
	{
		name: "a release that nobody claimed is due again", file: "dispatch/sweep.go",
		old: "UPDATE outbox.outbox o SET phase = 'due' FROM held h", new: "UPDATE outbox.outbox o SET phase = o.phase FROM held h",
		test: "./dispatch TestWhateverRanOutIsSwept",
	},
	{
		name: "safe-replay deadline", file: "dispatch/policy.go",
		old: "&& f.sinceFirst < safeReplay(f.caps, f.call)", new: "",
		test: "./dispatch TestPolicy",
	},
	{
		name: "safe-replay deadline is checked again before the write", file: "dispatch/reconcile.go",
		old: "KeyMemory > 0 && !time.Now().Before(safe) {", new: "KeyMemory > 0 && safe.IsZero() {",
		test: "./dispatch TestAResendIsSafeWhenItIsWritten",
	},
	{
		name: "a resend is claimed before it is sent", file: "dispatch/reconcile.go",
		old: "if err != nil || n == 0 {", new: "if err != nil || n < 0 {",
		test: "./dispatch TestAResendIsClaimedBeforeItIsSent",
	},
	{
		name: "absence is proof where the preset says so", file: "dispatch/policy.go",
		old: "return f.caps.AbsenceIsProof && f.settledDown()", new: "return f.settledDown()",
		test: "./dispatch TestWhenAbsenceIsProof",
	},
	{
		name: "absence is proof after the lag", file: "dispatch/policy.go",
		old: "return f.reported && f.sinceUnknown >= f.caps.LookupLag &&", new: "return f.reported &&",
		test: "./dispatch TestWhenAbsenceIsProof",
	},
	{
		name: "absence is proof when the sender has reported", file: "dispatch/policy.go",
		old: "return f.reported && f.sinceUnknown", new: "return f.sinceUnknown",
		test: "./dispatch TestWhenAbsenceIsProof",
	},
	{
		name: "absence is no proof while the key is remembered", file: "dispatch/policy.go",
		old: "f.settledDown() && !f.remembered()", new: "f.settledDown()",
		test: "./dispatch TestWhenAbsenceIsProof",
	},
	{
		name: "the lag begins anew with a resend", file: "dispatch/policy.go",
		old: "&& (!f.resent || f.sinceResent >= f.call+f.caps.LookupLag)", new: "",
		test: "./dispatch TestWhenAbsenceIsProof",
	},
	{
		name: "unknown is sticky: a resend's refusal that does not decide", file: "dispatch/reconcile.go",
		old: "case a.Kind == providers.KindRefused && a.Final && decides:", new: "case a.Kind == providers.KindRefused && (decides || a.Final):",
		test: "./dispatch TestOnlyTheProvidersMemoryAnswersForAnEarlierAttempt",
	},
	{
		name: "unknown is sticky: whose refusal decides", file: "dispatch/policy.go",
		old: "return false // it has no memory", new: "return true // it has no memory",
		test: "./dispatch TestWhenARefusalOfAResendDecides",
	},
	{
		name: "nobody asks in another account", file: "dispatch/reconcile.go",
		old: "if p.pins.account != nil && *p.pins.account != p.provider.Account() {", new: "if false {",
		test: "./dispatch TestAnUnknownOutcomeIsNotAskedAboutInAnotherAccount",
	},
	{
		name: "questions have places of their own", file: "dispatch/lane.go",
		old: "l.probes.resize(max(1, concurrency/probeShare))", new: "l.probes.resize(concurrency)",
		test: "./dispatch TestALaneKeepsATenthBesideForQuestions",
	},

	// Follow-ons.
	{
		name: "a follow-on's key is its parent and its name", file: "migrations/sql/00003_enqueue.sql",
		old: "IF follow_on IS NOT NULL THEN", new: "IF false THEN",
		test: "./outbox TestAFollowOnHasItsParentsKey",
	},
	{
		name: "what another worker follows up is left to it", file: "dispatch/follow.go",
		old: "AND o.phase = 'following' FOR UPDATE SKIP LOCKED", new: "AND o.phase = 'following' FOR UPDATE",
		test: "./dispatch TestWhatAnotherWorkerFollowsUpIsLeftToIt",
	},

	// Failover.
	{
		name: "what may have been sent is in doubt after a failover", file: "migrations/sql/00006_recognise.sql",
		old: "doubted := outbox.doubt_sent(recognise.actor,", new: "doubted := length(",
		test: "./dispatch TestAfterAFailoverWhatMayHaveBeenSentIsFoundOutFirst",
	},
	{
		name: "a clone sends nothing", file: "migrations/sql/00006_recognise.sql",
		old: "WHEN l.system_identifier <> h.system_identifier OR l.database <> h.database THEN", new: "WHEN false THEN",
		test: "./dispatch TestACloneSendsNothingUntilToldThatItIsTheOriginal",
	},

	// Set-up.
	{
		name: "a lease covers its call", file: "dispatch/serve.go",
		old: "if lease < call+LeaseMargin {", new: "if lease < call-call {",
		test: "./dispatch TestAServiceThatCouldNotKeepItsPromiseIsRefused",
	},
	{
		name: "neither key nor lookup needs a choice", file: "dispatch/serve.go",
		old: "!local && caps.KeyMemory == 0 && !caps.Lookup && r.Spec.Unknown == \"\"", new: "!local && caps.KeyMemory < 0",
		test: "./dispatch TestAServiceThatCouldNotKeepItsPromiseIsRefused",
	},

	// Operators.
	{
		name: "replay never sends an unknown outcome", file: "migrations/sql/00005_operate.sql",
		old: "        WHEN o.state = 'outcome_unknown' THEN\n            did := 'asked_now';\n", new: "",
		test: "./cmd/outbox-worker TestEveryActionInEverySituation",
	},
	{
		name: "nothing is done without actor and reason", file: "migrations/sql/00005_operate.sql",
		old: "FROM outbox.unsigned(hold.actor, hold.reason) u WHERE u.code IS NOT NULL;", new: "FROM outbox.unsigned(hold.actor, hold.reason) u WHERE false;",
		test: "./cmd/outbox-worker TestNothingIsDoneWithoutActorReasonAndEvidence",
	},
	{
		name: "nothing is done in a ledger that has moved", file: "migrations/sql/00005_operate.sql",
		old: "IF NOT outbox.at_home() THEN\n            h.answer", new: "IF false THEN\n            h.answer",
		test: "./cmd/outbox-worker TestNothingIsDoneInALedgerThatHasMoved",
	},

	// Measuring.
	{
		name: "bench makes its schemas or does not measure", file: "internal/figures/guest.go",
		old: `"CREATE SCHEMA "+migrations.Schema)`, new: `"CREATE SCHEMA IF NOT EXISTS "+migrations.Schema)`,
		test: "./cmd/outbox-worker TestBenchTouchesNoLedger",
	},
	{
		name: "bench that is cut off leaves nothing behind", file: "internal/figures/guest.go",
		old: "context.WithTimeout(context.WithoutCancel(ctx), leaving)", new: "context.WithTimeout(ctx, leaving)",
		test: "./cmd/outbox-worker TestBenchCutOffLeavesNothingBehind",
	},
	{
		name: "bench drops no role that somebody uses", file: "internal/figures/guest.go",
		old: "	if !used {\n", new: "	if true {\n",
		test: "./cmd/outbox-worker TestBenchKeepsRolesThatOthersHaveBegunToUse",
	},
}
