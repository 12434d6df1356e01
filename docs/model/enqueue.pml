/*
 * Callers who want one effect under one key: enqueue, commit or roll back, ask again,
 * supersede what is proven not to have happened. What follows a commit is abbreviated
 * (dispatch.pml has it): an open intent has its effect, or is proven not to have had it.
 *
 *	WITHOUT   a guard to take out: see the names below
 */
c_decl {
	enum { nothing_out, unique_key, one_transaction, supersede_only_proven, close_exhausted, head_lock, names };
	static const char *name[names] = { "", "unique_key", "one_transaction", "supersede_only_proven", "close_exhausted", "head_lock" };
	static int without;
	__attribute__((constructor)) static void choose(void) {
		const char *w = getenv("WITHOUT");
		while (w != 0 && *w != 0 && without < names && strcmp(name[without], w) != 0)
			without++;
		if (without == names) {
			fprintf(stderr, "no such guard: %s\n", w);
			exit(2);
		}
	}
}
#define WITH(g)    c_expr { without != g }
#define WITHOUT(g) c_expr { without == g }

#define CALLERS 2
#define ROWS    4        /* intents: one a generation, unless the key is not unique */
#define NOBODY  9

mtype:intent = { free, uncommitted, open, exhausted, notdone, done };

mtype:intent row[ROWS];
byte generation[ROWS];    /* of the key */
byte writer[ROWS] = NOBODY;
bool work[ROWS];         /* its outbox row, as a worker sees it */
byte locked[ROWS] = NOBODY;   /* by a caller who supersedes it and has not committed */
byte head = 1;           /* the current generation */
byte headlock = NOBODY;
byte rows = 0;
byte effects = 0;

#define HOLDS(i, g) (i < rows && row[i] != free && generation[i] == g)
#define EXISTS(g)   (HOLDS(0, g) || HOLDS(1, g) || HOLDS(2, g) || HOLDS(3, g))
#define TAKEN(g)    (EXISTS(g) && WITH(unique_key))
#define PENDING(i, g) (HOLDS(i, g) && row[i] == uncommitted && writer[i] != me)
/* As for a unique constraint: who comes second waits for the first's commit or rollback. */
#define WAITS(g)    (WITH(unique_key) && (PENDING(0, g) || PENDING(1, g) || PENDING(2, g) || PENDING(3, g)))

inline insert(g) {
	mine = rows; rows++;
	row[mine] = uncommitted; generation[mine] = g; writer[mine] = me;
	work[mine] = WITHOUT(one_transaction)
}

inline finish() {
	if
	:: mine != NOBODY -> row[mine] = open; work[mine] = true; head = generation[mine]
	:: else -> skip
	fi;
	if :: old != NOBODY -> row[old] = (row[old] == exhausted -> notdone : row[old]); locked[old] = (locked[old] == me -> NOBODY : locked[old]) :: else -> skip fi;
	headlock = (headlock == me -> NOBODY : headlock)
}

inline undo() {
	if :: mine != NOBODY -> row[mine] = free :: else -> skip fi;
	if :: old != NOBODY -> locked[old] = (locked[old] == me -> NOBODY : locked[old]) :: else -> skip fi;
	headlock = (headlock == me -> NOBODY : headlock)
}

proctype caller(byte me) {
	byte asks = 0, mine, old, g, i;
	do
	:: asks < 2 && rows < ROWS ->
		asks++;
		/* begin */
		atomic { mine = NOBODY; old = NOBODY; g = 1; i = 0 };
		if
		/* outbox.insert_intent */
		:: atomic { !WAITS(1) -> if :: TAKEN(1) -> skip :: else -> insert(1) fi }
		/* outbox.supersede of the latest generation, under the head's lock */
		:: atomic { rows > 0 && (headlock == NOBODY || WITHOUT(head_lock)) -> headlock = me; g = head;
			do
			:: i < rows && (row[i] == free || row[i] == uncommitted || generation[i] != g) -> i++
			:: else -> break
			od;
			if
			:: i < rows && (row[i] == notdone || row[i] == exhausted || (WITHOUT(supersede_only_proven) && row[i] == open)) -> old = i
			:: else -> skip                  /* refused */
			fi };
			if
			:: old != NOBODY ->
				atomic { locked[old] == NOBODY && !WAITS(g + 1) ->
					/* DELETE … WHERE state = 'exhausted': not if it was replayed meanwhile */
					if
					:: WITH(close_exhausted) && row[old] != exhausted && row[old] != notdone && WITH(supersede_only_proven) -> old = NOBODY
					:: else ->
						locked[old] = (WITH(close_exhausted) -> me : NOBODY);
						if :: !TAKEN(g + 1) -> insert(g + 1) :: else -> locked[old] = NOBODY; old = NOBODY fi
					fi }
			:: else -> skip
			fi
		fi;
		if
		:: atomic { true -> finish() }            /* commit; its answer may be lost, and the caller asks again */
		:: atomic { true -> undo() }            /* roll back, or a crash */
		fi
	:: break
	od
}

proctype worker() {
	byte i;
end_worker:
	do
	:: atomic { i < rows && work[i] && (row[i] == open || (WITHOUT(one_transaction) && row[i] != done)) && locked[i] == NOBODY ->
		if
		:: assert(row[i] == open);           /* if and only if it commits */
			assert(effects == 0);             /* one key, one effect */
			effects++; row[i] = done
		:: row[i] = notdone
		:: row[i] = exhausted
		fi }
	:: atomic { i < rows && row[i] == exhausted && locked[i] == NOBODY -> row[i] = open }   /* replayed by an operator */
	:: atomic { i + 1 < rows -> i++ }
	:: atomic { i > 0 -> i-- }
	od
}

init {
	atomic { row[0] = free; row[1] = free; row[2] = free; row[3] = free;
		run caller(0); run caller(1); run worker() }
}
