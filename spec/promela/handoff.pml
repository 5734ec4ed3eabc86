/*
 * The handoff-and-reclaim protocol, after DESIGN.md, sections 1 and 2:
 * one process for each party of each request, a network that is a bag.
 *
 *   -DPULL          decode reads prefill's memory; default: prefill writes decode's
 *   -DBLOCKS=n      blocks of the owner's pool (1 or 2; default 2)
 *   -DREQUESTS=n    requests, each with one handoff (1 or 2; default 2)
 *   -DLOSS=0|1      any message may be lost (default 1)
 *   -DDOUBLES=n     messages that may be doubled (default 1)
 *   -DCRASHES=n     workers that may crash (default 1)
 *   -DNO_X          without the guard X
 *   -DWANT=mask     which rules count (default: all)
 *
 * "Own" is the worker whose memory is granted, "Acc" the one that reaches into it.
 * Every line that a step prints with EV is an event of the trace; spin prints
 * them when it follows a trail. A broken rule is noted in "broken", and the run
 * goes on to its end, where it is asserted: so every trail is a whole run.
 */

#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef LOSS
#define LOSS 1
#endif
#ifndef DOUBLES
#define DOUBLES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

/* The rules, as bits. */
#define BLK1 1
#define BLK2 2
#define BLK3 4
#define BLK4 8
#define BLK5 16
#define REQ1 32
#define REQ2 64
#define REQ3 128
#define REQ4 256
#define REQ5 512
#define SIG1 1024
#define SIG2 2048
#define SIG3 4096
#define SIG4 8192
#define DAT1 16384
#define DAT2 32768
#ifndef WANT
#define WANT 65535
#endif

int broken;
#define BREAK(rule) broken = broken | rule

/* GRANT: METADATA or KV_PARAMS. DONE: completed. FAILED, REFUSED, ABORT_ACK:
   drained. HOLLOW: an ABORT_ACK that was sent too early. */
mtype = { GRANT, ABORT, ABORT_ACK, HOLLOW, DONE, FAILED, REFUSED };
mtype = { none, ok, error, rejected, cancelled };

chan toAcc[2] = [3] of { mtype };
chan toOwn[2] = [4] of { mtype };

bool ownDown, accDown;
byte doubles = DOUBLES;
byte crashes = CRASHES;

/* The client's connections: late, but neither lost nor doubled. */
bool started[2], big[2], subOwn[2], subAcc[2], killOwn[2], killAcc[2];
mtype ansOwn[2] = none;
mtype ansAcc[2] = none;
mtype told[2] = none;

/* The pool. holder is 0 for free, else 1 + the request that holds the lease. */
byte holder[2], content[2];
bool used[2];
byte blk[2];          /* 1 + the block that was leased for the request */
bool writing[2];      /* the accessor's access is open, in the owner's memory */
bool ownOpen[2];      /* the owner's access is open */
bool fenced[2], granted[2];
bool quiet[2];        /* evidence that the accessor is quiet is with the owner */

/* What the monitors remember. */
bool refusedIt[2];    /* some stage rejected it */
bool endedIt[2];      /* rejected, cancelled or expired somewhere */
bool accStop[2];      /* the accessor has taken a cancellation in */
bool accSaid[2];      /* the accessor has claimed drained */
bool asked[2];        /* an acknowledgement is asked for */
bool haveSource[2], badRead[2], didRead[2], ownOver[2];

#define FREE(b) (holder[b] == 0)
#define TOUCHED(b) (writing[0] && blk[0] == b+1 || writing[1] && blk[1] == b+1 || ownOpen[0] && blk[0] == b+1 || ownOpen[1] && blk[1] == b+1)

inline toOwner(h, k) {
	if
	:: writing[h] -> BREAK(SIG1)
	:: else
	fi;
	if
	:: k != DONE -> accSaid[h] = true
	:: else
	fi;
	printf("EV A emit %d %e\n", h, k);
	if
	:: ownDown
	:: else -> toOwn[h]!!k
	fi
}

inline toAccessor(h, k) {
	printf("EV O emit %d %e\n", h, k);
	if
	:: accDown
	:: else -> toAcc[h]!!k
	fi
}

/* A word arrives at the owner, for request h. */
inline word(h, k) {
	toOwn[h]??k;
	printf("EV O observe %d %e\n", h, k);
	if
	:: k != HOLLOW && !writing[h] -> quiet[h] = true
	:: else
	fi;
	if
	:: k == ABORT_ACK || k == HOLLOW -> asked[h] = false /* however late: it has come */
	:: else
	fi
}

inline lease(h, b) {
	if
	:: !FREE(b) -> BREAK(BLK1)
	:: else
	fi;
	holder[b] = h + 1;
	used[b] = true;
	content[b] = 0;
	blk[h] = b + 1;
	printf("EV O alloc %d %d\n", h, b)
}

/* release ends the lease of request rq on the word of request wd (9: on no word). */
inline release(rq, wd) {
	if
	:: holder[blk[rq]-1] != rq + 1 -> BREAK(BLK4)
	:: else ->
		if
		:: TOUCHED(blk[rq]-1) -> BREAK(BLK2)
		:: else ->
			if
			:: granted[rq] && !quiet[rq] -> BREAK(SIG2)
			:: else
			fi
		fi
	fi;
	if
	:: wd != 9 && wd != rq -> BREAK(SIG3)
	:: else
	fi;
	holder[blk[rq]-1] = 0
}

inline finishOwn(h, how) {
	if
	:: ownOver[h] -> BREAK(REQ4)
	:: else
	fi;
	if
	:: told[h] == ok && how != ok -> BREAK(REQ4)
	:: else
	fi;
	ownOver[h] = true;
	ansOwn[h] = how;
	printf("EV O finish %d %e\n", h, how)
}

inline finishAcc(h, how) {
	if
	:: ansAcc[h] == none ->
		if
		:: told[h] == ok && how != ok -> BREAK(REQ4)
		:: else
		fi;
		ansAcc[h] = how;
		printf("EV A finish %d %e\n", h, how)
	:: else
	fi
}

inline cancelOwn(h) { endedIt[h] = true; printf("EV O cancel %d\n", h) }
inline cancelAcc(h) {
	if
	:: !accStop[h] -> endedIt[h] = true; accStop[h] = true; printf("EV A cancel %d\n", h)
	:: else
	fi
}

inline readState(h, who, good) {
	didRead[h] = true;
	if
	:: !good || content[blk[h]-1] != h + 1 -> badRead[h] = true
	:: else
	fi;
	if
	:: haveSource[h] && badRead[h] -> BREAK(DAT1)
	:: else
	fi;
	if
	:: who == 0 && good -> printf("EV O target %d %d\n", h, content[blk[h]-1])
	:: who == 0 && !good -> printf("EV O target %d 0\n", h)
	:: who == 1 && good -> printf("EV A target %d %d\n", h, content[blk[h]-1])
	:: who == 1 && !good -> printf("EV A target %d 0\n", h)
	fi
}

inline wroteState(h) {
	haveSource[h] = true;
	if
	:: badRead[h] -> BREAK(DAT1)
	:: else
	fi
}

/* The clock of the owner: it reports, fences, and only then releases. */
inline runOut(h, how) {
	endedIt[h] = true;
	if
	:: told[h] == ok && how != ok -> BREAK(REQ4)
	:: else
	fi;
#ifdef NO_REPORT_ABSENCE
	if
	:: asked[h]
	:: else -> printf("EV O expire %d\n", h)
	fi;
#else
	asked[h] = false;
	printf("EV O expire %d\n", h);
#endif
#ifndef NO_FENCE_FIRST
	fenced[h] = true;
	writing[h] = false;
	quiet[h] = true;
	printf("EV O fence %d\n", h);
#endif
	if
	:: !quiet[h] -> BREAK(REQ2)
	:: else
	fi;
	release(h, 9);
	printf("EV O free %d %d timeout 0\n", h, blk[h]-1)
}

/* CHOOSE is a block to lease. Of blocks that were never used, the first: they do
   not differ. */
#ifdef NO_FREE_ONLY
#define MAY(b) (b < BLOCKS)
#else
#define MAY(b) (b < BLOCKS && FREE(b) && (b == 0 || used[b] || used[b-1]))
#endif

#ifdef NO_EXACT_HANDOFF
/* A word that nobody waits for is taken for the other use of the same raw key. */
#define OTHERS(k) (blk[o] != 0 && holder[blk[o]-1] != o + 1 && toOwn[o]??[k])
#endif

/* ------------------------------------------------------------------ push */
#ifndef PULL

proctype Own(byte h) {
	byte b;
#ifdef NO_EXACT_HANDOFF
	byte o = 1 - h;
#endif
fresh:	if
	:: atomic { !ownDown && subOwn[h] && MAY(0) -> b = 0 }
	:: atomic { !ownDown && subOwn[h] && MAY(1) -> b = 1 }
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false; cancelOwn(h); finishOwn(h, cancelled); goto over }
	:: atomic { !ownDown && toOwn[h]??[FAILED] -> word(h, FAILED); finishOwn(h, error); goto over }
	:: atomic { !ownDown && toOwn[h]??[REFUSED] -> word(h, REFUSED); finishOwn(h, rejected); goto over }
	fi;
	atomic {
		if
		:: !ownDown && MAY(b) ->
			subOwn[h] = false;
			printf("EV O admit %d\n", h);
			lease(h, b);
			granted[h] = true;
			printf("EV O grant %d %d\n", h, b);
			toAccessor(h, GRANT);
			goto waiting
		:: else -> goto fresh
		fi
	};
waiting: if
	:: atomic { !ownDown && toOwn[h]??[DONE] -> word(h, DONE); printf("EV O accept %d 1\n", h); goto take }
#ifdef NO_EXACT_HANDOFF
	:: atomic { !ownDown && OTHERS(DONE) -> word(o, DONE); BREAK(SIG3); printf("EV O accept %d 1\n", h); goto take }
#endif
#ifdef NO_COMPLETE_FIRST
	:: atomic { !ownDown -> printf("EV O accept %d 0\n", h); goto take }
#endif
	:: atomic { !ownDown && toOwn[h]??[FAILED] -> word(h, FAILED);
#ifndef NO_RELEASE_AT_REFUSAL
		release(h, h); printf("EV O free %d %d cancel 1\n", h, b);
#endif
		finishOwn(h, error); goto over }
	:: atomic { !ownDown && toOwn[h]??[REFUSED] -> word(h, REFUSED);
#ifndef NO_RELEASE_AT_REFUSAL
		release(h, h); printf("EV O free %d %d reject 1\n", h, b);
#endif
		finishOwn(h, rejected); goto over }
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false; cancelOwn(h);
#ifdef NO_WAIT_DRAINED
		release(h, 9); printf("EV O free %d %d cancel 0\n", h, b);
		finishOwn(h, cancelled); goto over
#else
		asked[h] = true; toAccessor(h, ABORT); goto aborting
#endif
	}
#ifndef NO_TIMEOUT_EXISTS
	:: atomic { !ownDown -> runOut(h, error); finishOwn(h, error); goto over }
#endif
	fi;
aborting: if
	:: atomic { !ownDown && toOwn[h]??[ABORT_ACK] -> word(h, ABORT_ACK); release(h, h); printf("EV O free %d %d cancel 1\n", h, b); finishOwn(h, cancelled); goto over }
	:: atomic { !ownDown && toOwn[h]??[HOLLOW] -> word(h, HOLLOW); release(h, h); printf("EV O free %d %d cancel 1\n", h, b); finishOwn(h, cancelled); goto over }
#ifdef NO_EXACT_HANDOFF
	:: atomic { !ownDown && OTHERS(ABORT_ACK) -> word(o, ABORT_ACK); release(h, o); printf("EV O free %d %d cancel 1\n", h, b); finishOwn(h, cancelled); goto over }
#endif
	:: atomic { !ownDown && toOwn[h]??[DONE] -> word(h, DONE); goto aborting }
	:: atomic { !ownDown && toOwn[h]??[FAILED] -> word(h, FAILED); goto aborting }
	:: atomic { !ownDown && toOwn[h]??[REFUSED] -> word(h, REFUSED); goto aborting }
#ifndef NO_TIMEOUT_EXISTS
	:: atomic { !ownDown -> runOut(h, cancelled); finishOwn(h, cancelled); goto over }
#endif
	fi;
take:	atomic { !ownDown ->
		if
		:: refusedIt[h] -> BREAK(REQ1)
		:: else
		fi;
		ownOpen[h] = true;
		printf("EV O begin %d %d\n", h, b);
		readState(h, 0, true)
	};
running: if
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false; cancelOwn(h);
#ifdef NO_OWN_ACCESS_FIRST
		release(h, 9); printf("EV O free %d %d cancel 0\n", h, b);
		ownOpen[h] = false; printf("EV O end %d 1\n", h);
#else
		ownOpen[h] = false; printf("EV O end %d 1\n", h);
		release(h, 9); printf("EV O free %d %d cancel 0\n", h, b);
#endif
		finishOwn(h, cancelled); goto over }
	:: atomic { !ownDown -> readState(h, 0, true);
		ownOpen[h] = false; printf("EV O end %d 1\n", h);
		if
		:: refusedIt[h] -> BREAK(REQ1)
		:: else
		fi;
		printf("EV O output %d\n", h);
#ifndef NO_RELEASE_AT_END
		release(h, 9); printf("EV O free %d %d done 0\n", h, b);
#endif
		finishOwn(h, ok); goto over }
	:: atomic { !ownDown && toOwn[h]??[DONE] -> word(h, DONE); goto running }
	fi;
over:	do
	:: atomic { !ownDown && subOwn[h] -> subOwn[h] = false }
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false }
	:: atomic { !ownDown && toOwn[h]??[ABORT_ACK] -> word(h, ABORT_ACK);
#ifdef NO_RELEASE_ONCE
		if
		:: blk[h] != 0 -> release(h, h); printf("EV O free %d %d done 1\n", h, b)
		:: else
		fi
#endif
	}
	:: atomic { !ownDown && toOwn[h]??[HOLLOW] -> word(h, HOLLOW) }
	:: atomic { !ownDown && toOwn[h]??[DONE] -> word(h, DONE);
#ifdef NO_FINISH_ONCE
		finishOwn(h, ok)
#endif
	}
	:: atomic { !ownDown && toOwn[h]??[FAILED] -> word(h, FAILED) }
	:: atomic { !ownDown && toOwn[h]??[REFUSED] -> word(h, REFUSED) }
	od
}

#else
/* ------------------------------------------------------------------ pull */

proctype Own(byte h) {
	byte b;
#ifdef NO_EXACT_HANDOFF
	byte o = 1 - h;
#endif
fresh:	if
	:: atomic { !ownDown && subOwn[h] && MAY(0) -> b = 0 }
	:: atomic { !ownDown && subOwn[h] && MAY(1) -> b = 1 }
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false; cancelOwn(h); finishOwn(h, cancelled); goto over }
	fi;
	atomic {
		if
		:: !ownDown && MAY(b) ->
			subOwn[h] = false;
			printf("EV O admit %d\n", h);
			lease(h, b);
			ownOpen[h] = true;
			printf("EV O begin %d %d\n", h, b);
			goto computing
		:: else -> goto fresh
		fi
	};
computing: if
	:: atomic { !ownDown ->
		content[b] = h + 1;
		ownOpen[h] = false; printf("EV O end %d 1\n", h);
		wroteState(h); printf("EV O source %d %d\n", h, h + 1);
		printf("EV O hold %d %d\n", h, b);
		printf("EV O drop %d %d\n", h, b);
#ifdef NO_COMPLETE_FIRST
		if
		:: granted[h]
		:: else -> granted[h] = true; printf("EV O grant %d %d\n", h, b); printf("EV O offer %d\n", h); toAccessor(h, GRANT)
		fi;
#else
		granted[h] = true; printf("EV O grant %d %d\n", h, b); printf("EV O offer %d\n", h); toAccessor(h, GRANT);
#endif
		finishOwn(h, ok) }
#ifdef NO_COMPLETE_FIRST
	:: atomic { !ownDown && !granted[h] -> granted[h] = true; printf("EV O grant %d %d\n", h, b); printf("EV O offer %d\n", h); toAccessor(h, GRANT); goto computing }
#endif
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false; cancelOwn(h);
#ifdef NO_OWN_ACCESS_FIRST
		release(h, 9); printf("EV O free %d %d cancel 2\n", h, b);
		ownOpen[h] = false; printf("EV O end %d 1\n", h);
#else
		ownOpen[h] = false; printf("EV O end %d 1\n", h);
		release(h, 9); printf("EV O free %d %d cancel 2\n", h, b);
#endif
		finishOwn(h, cancelled); goto over }
	fi;
lent:	if
	:: atomic { !ownDown && toOwn[h]??[DONE] -> word(h, DONE);
#ifndef NO_RELEASE_AT_END
		release(h, h); printf("EV O free %d %d done 1\n", h, b);
#endif
		goto over }
	:: atomic { !ownDown && toOwn[h]??[FAILED] -> word(h, FAILED);
#ifndef NO_RELEASE_AT_REFUSAL
		release(h, h); printf("EV O free %d %d cancel 1\n", h, b);
#endif
		goto over }
	:: atomic { !ownDown && toOwn[h]??[REFUSED] -> word(h, REFUSED);
#ifndef NO_RELEASE_AT_REFUSAL
		release(h, h); printf("EV O free %d %d reject 1\n", h, b);
#endif
		goto over }
#ifdef NO_EXACT_HANDOFF
	:: atomic { !ownDown && OTHERS(DONE) -> word(o, DONE); release(h, o); printf("EV O free %d %d done 1\n", h, b); goto over }
#endif
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false;
#ifdef NO_WAIT_DRAINED
		cancelOwn(h); release(h, 9); printf("EV O free %d %d cancel 0\n", h, b); goto over
#else
		goto lent
#endif
	}
#ifndef NO_TIMEOUT_EXISTS
	:: atomic { !ownDown -> runOut(h, ok); goto over }
#endif
	fi;
over:	do
	:: atomic { !ownDown && subOwn[h] -> subOwn[h] = false }
	:: atomic { !ownDown && killOwn[h] -> killOwn[h] = false }
	:: atomic { !ownDown && toOwn[h]??[DONE] -> word(h, DONE);
#ifdef NO_RELEASE_ONCE
		if
		:: blk[h] != 0 -> release(h, h); printf("EV O free %d %d done 1\n", h, b)
		:: else
		fi
#endif
	}
	:: atomic { !ownDown && toOwn[h]??[FAILED] -> word(h, FAILED);
#ifdef NO_RELEASE_ONCE
		if
		:: blk[h] != 0 -> release(h, h); printf("EV O free %d %d cancel 1\n", h, b)
		:: else
		fi
#endif
	}
	:: atomic { !ownDown && toOwn[h]??[REFUSED] -> word(h, REFUSED) }
	od
}
#endif

/* -------------------------------------------------------------- accessor */

inline begin(h) {
	if
	:: fenced[h] /* turned away */
	:: else ->
		if
		:: holder[blk[h]-1] != h + 1 -> BREAK(BLK3)
		:: else -> writing[h] = true
		fi
	fi;
	if
	:: refusedIt[h] -> BREAK(REQ1)
	:: else
	fi;
	if
	:: accStop[h] -> BREAK(REQ3)
	:: else
	fi;
	if
	:: accSaid[h] -> BREAK(SIG1)
	:: else
	fi;
	printf("EV A begin %d %d\n", h, blk[h]-1)
}

/* admission decides by what can be processed. yes is set if it is admitted. */
inline admission(h, yes) {
	yes = true;
	if
	:: big[h] ->
#ifdef NO_WITHIN_CAPACITY
		BREAK(REQ5);
		printf("EV A admit %d\n", h)
#else
		refusedIt[h] = true;
		endedIt[h] = true;
		if
		:: told[h] == ok -> BREAK(REQ4)
		:: else
		fi;
		printf("EV A reject %d\n", h);
#ifdef NO_REJECT_TERMINAL
		finishAcc(h, rejected)
#else
		yes = false;
		toOwner(h, REFUSED);
		finishAcc(h, rejected)
#endif
#endif
	:: else -> printf("EV A admit %d\n", h)
	fi
}

#ifndef PULL
proctype Acc(byte h) {
	bool yes, have, owed, good, late;
idle:	if
	:: atomic { !accDown && subAcc[h] -> subAcc[h] = false; admission(h, yes);
		if
		:: yes -> printf("EV A offer %d\n", h); goto ready
		:: else -> goto over
		fi }
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h); have = true; goto idle }
	:: atomic { !accDown && toAcc[h]??[ABORT] -> toAcc[h]??ABORT; printf("EV A observe %d ABORT\n", h); cancelAcc(h); toOwner(h, ABORT_ACK);
#ifdef NO_STOP_ON_CANCEL
		goto idle
#else
		finishAcc(h, cancelled); goto over
#endif
	}
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false; cancelAcc(h);
#ifdef NO_STOP_ON_CANCEL
		goto idle
#else
		toOwner(h, FAILED); finishAcc(h, cancelled); goto over
#endif
	}
	fi;
ready:	if
	:: atomic { !accDown && have -> late = fenced[h]; begin(h); have = false; goto busy }
#ifdef NO_AWAIT_GRANT
	:: atomic { !accDown && !have && granted[h] ->
		if
		:: fenced[h] /* turned away: it is as if it had not been */
		:: else -> BREAK(SIG2)
		fi;
		late = fenced[h]; begin(h); goto busy }
#endif
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h); have = true; goto ready }
	:: atomic { !accDown && toAcc[h]??[ABORT] -> toAcc[h]??ABORT; printf("EV A observe %d ABORT\n", h); cancelAcc(h); toOwner(h, ABORT_ACK);
#ifdef NO_STOP_ON_CANCEL
		goto ready
#else
		finishAcc(h, cancelled); goto over
#endif
	}
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false; cancelAcc(h);
#ifdef NO_STOP_ON_CANCEL
		goto ready
#else
		toOwner(h, FAILED); finishAcc(h, cancelled); goto over
#endif
	}
	fi;
busy:	if
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h); goto busy }
	:: atomic { !accDown && toAcc[h]??[ABORT] -> toAcc[h]??ABORT; printf("EV A observe %d ABORT\n", h); cancelAcc(h);
#ifdef NO_ACK_DRAINED
		toOwner(h, HOLLOW);
#else
		owed = true;
#endif
		goto busy }
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false; cancelAcc(h); goto busy }
	:: atomic { !accDown ->
		good = !fenced[h] && !ownDown;
		if
		:: good -> content[blk[h]-1] = h + 1
		:: else
		fi;
#ifdef NO_FAILED_WRITE_REFUSED
		if
		:: late -> BREAK(SIG1); good = true
		:: else
		fi;
#endif
		writing[h] = false;
		printf("EV A end %d %d\n", h, good);
		if
		:: owed -> owed = false; toOwner(h, ABORT_ACK); finishAcc(h, cancelled)
		:: !owed && accStop[h] -> toOwner(h, FAILED); finishAcc(h, cancelled)
		:: !owed && !accStop[h] && good -> wroteState(h); printf("EV A source %d %d\n", h, h + 1); toOwner(h, DONE); finishAcc(h, ok)
		:: !owed && !accStop[h] && !good -> toOwner(h, FAILED); finishAcc(h, error)
		fi;
		goto over }
	fi;
over:	do
	:: atomic { !accDown && subAcc[h] -> subAcc[h] = false }
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false }
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h);
#ifdef NO_GRANT_ONCE
		if
		:: ansAcc[h] == ok -> have = true; goto ready
		:: else
		fi
#endif
	}
	:: atomic { !accDown && toAcc[h]??[ABORT] -> toAcc[h]??ABORT; printf("EV A observe %d ABORT\n", h); toOwner(h, ABORT_ACK) }
	od
}

#else
proctype Acc(byte h) {
	bool yes, good, stale;
idle:	if
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h); admission(h, yes);
		if
		:: yes -> goto ready
		:: else -> goto over
		fi }
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false; cancelAcc(h);
#ifdef NO_STOP_ON_CANCEL
		goto idle
#else
		toOwner(h, FAILED); finishAcc(h, cancelled); goto over
#endif
	}
	fi;
ready:	if
	:: atomic { !accDown -> begin(h); goto busy }
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false; cancelAcc(h);
#ifdef NO_STOP_ON_CANCEL
		goto ready
#else
		toOwner(h, FAILED); finishAcc(h, cancelled); goto over
#endif
	}
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h); goto ready }
	fi;
busy:	if
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h); goto busy }
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false; cancelAcc(h); goto busy }
	:: atomic { !accDown ->
		good = !fenced[h] && !ownDown;
		writing[h] = false;
		printf("EV A end %d %d\n", h, good);
		if
		:: ansAcc[h] != none -> toOwner(h, DONE); goto over
		:: ansAcc[h] == none && accStop[h] -> toOwner(h, FAILED); finishAcc(h, cancelled); goto over
		:: ansAcc[h] == none && !accStop[h] && good -> readState(h, 1, true); printf("EV A accept %d 0\n", h); toOwner(h, DONE); goto running
		:: ansAcc[h] == none && !accStop[h] && !good ->
#ifdef NO_FAILED_READ_REFUSED
			readState(h, 1, false); printf("EV A accept %d 0\n", h); toOwner(h, DONE); goto running
#else
			toOwner(h, FAILED); finishAcc(h, error); goto over
#endif
		fi }
	fi;
running: if
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false; cancelAcc(h); finishAcc(h, cancelled); goto over }
	:: atomic { !accDown -> printf("EV A output %d\n", h); finishAcc(h, ok); goto over }
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h); goto running }
	fi;
over:	do
	:: atomic { !accDown && killAcc[h] -> killAcc[h] = false }
	:: atomic { !accDown && toAcc[h]??[GRANT] -> toAcc[h]??GRANT; printf("EV A observe %d GRANT\n", h);
#ifdef NO_GRANT_ONCE
		if
		:: ansAcc[h] == ok -> goto ready
		:: else
		fi
#endif
	}
	od
}
#endif

/* ---------------------------------------------------------------- client */

#define BOTH(h) (ansOwn[h] != none && ansAcc[h] != none)
#ifdef PULL
#define ANSWERED(h) (BOTH(h) || ansOwn[h] != none && ansOwn[h] != ok)
#else
#define ANSWERED(h) BOTH(h)
#endif

inline tell(h, how) {
	told[h] = how;
	if
	:: how == ok && (ansOwn[h] != ok && ansOwn[h] != none || ansAcc[h] != ok && ansAcc[h] != none) -> BREAK(REQ4)
	:: else
	fi;
	printf("EV C finish %d %e\n", h, how);
	if
	:: how == ok && didRead[h] && badRead[h] -> BREAK(DAT2); printf("EV C answer %d 0\n", h)
	:: how == ok && didRead[h] && !badRead[h] -> printf("EV C answer %d 1\n", h)
	:: else
	fi
}

proctype Client(byte h) {
	bool hungUp;
	/* The requests do not differ: the first is the one that is sent first. */
	atomic {
		(h == 0 || started[0]) -> started[h] = true;
		if
		:: big[h] = false
		:: big[h] = true
		fi;
		printf("EV C submit %d %d\n", h, 1 + big[h]);
		if
		:: ownDown -> ansOwn[h] = error
		:: else -> subOwn[h] = true
		fi;
		if
		:: accDown -> ansAcc[h] = error
		:: else ->
#ifndef PULL
			subAcc[h] = true
#else
			skip
#endif
		fi
	};
	do
	:: atomic { !hungUp -> hungUp = true;
		if
		:: !ownDown && ansOwn[h] == none -> killOwn[h] = true
		:: else
		fi;
		if
		:: !accDown && ansAcc[h] == none -> killAcc[h] = true
		:: else
		fi }
#ifdef NO_EVERY_STAGE
	:: atomic { ansOwn[h] == ok || ansAcc[h] == ok -> tell(h, ok); break }
#else
	:: atomic { ansOwn[h] == ok && ansAcc[h] == ok -> tell(h, ok); break }
#endif
	:: atomic { ANSWERED(h) && (ansOwn[h] == rejected || ansAcc[h] == rejected) -> tell(h, rejected); break }
	:: atomic { ANSWERED(h) && ansOwn[h] != rejected && ansAcc[h] != rejected && (ansOwn[h] == error || ansAcc[h] == error) -> tell(h, error); break }
	:: atomic { ANSWERED(h) && ansOwn[h] != rejected && ansAcc[h] != rejected && ansOwn[h] != error && ansAcc[h] != error && (ansOwn[h] == cancelled || ansAcc[h] == cancelled) -> tell(h, cancelled); break }
	od
}

/* ---------------------------------------- the network, and what may crash */

#if LOSS
#define LOSE(ch, h, k) :: atomic { ch[h]??[k] -> ch[h]??k; printf("EV H drop %d %e\n", h, k) }
#else
#define LOSE(ch, h, k)
#endif
#define TWICE(ch, h, k) :: atomic { doubles > 0 && ch[h]??[k] && nfull(ch[h]) -> doubles--; ch[h]!!k; printf("EV H duplicate %d %e\n", h, k) }
#define BOTHWAYS(ch, h, k) LOSE(ch, h, k) TWICE(ch, h, k)

inline flush(ch) {
	do
	:: nempty(ch) -> ch?_
	:: empty(ch) -> break
	od
}

proctype Net(byte h) {
	do
	BOTHWAYS(toAcc, h, GRANT)
	BOTHWAYS(toAcc, h, ABORT)
	BOTHWAYS(toOwn, h, ABORT_ACK)
	BOTHWAYS(toOwn, h, HOLLOW)
	BOTHWAYS(toOwn, h, DONE)
	BOTHWAYS(toOwn, h, FAILED)
	BOTHWAYS(toOwn, h, REFUSED)
	od
}

inline broke(h) {
	subOwn[h] = subOwn[h] && !ownDown;
	killOwn[h] = killOwn[h] && !ownDown;
	subAcc[h] = subAcc[h] && !accDown;
	killAcc[h] = killAcc[h] && !accDown;
	if
	:: ownDown && started[h] && ansOwn[h] == none -> ansOwn[h] = error
	:: else
	fi;
	if
	:: accDown && started[h] && ansAcc[h] == none -> ansAcc[h] = error
	:: else
	fi
}

proctype Machines() {
	do
	:: atomic { crashes > 0 && !ownDown -> crashes--; ownDown = true; printf("EV H exit O\n"); flush(toOwn[0]); flush(toOwn[1]); asked[0] = false; asked[1] = false; broke(0); broke(1) }
	:: atomic { crashes > 0 && !accDown -> crashes--; accDown = true; printf("EV H exit A\n"); flush(toAcc[0]); flush(toAcc[1]); broke(0); broke(1) }
	od
}

/* Where nothing is left to do: what is still open now, nobody will close. */
inline ending(h) {
	if
	:: !ownDown && asked[h] -> BREAK(SIG4)
	:: else
	fi;
	if
	:: !ownDown && blk[h] != 0 && holder[blk[h]-1] == h + 1 ->
		if
		:: endedIt[h] -> BREAK(REQ2)
		:: else
		fi;
		if
		:: ownOver[h] || told[h] != none -> BREAK(BLK5)
		:: else
		fi
	:: else
	fi
}

init {
	byte i;
	atomic {
		run Machines();
		for (i : 0 .. REQUESTS-1) {
			run Own(i);
			run Acc(i);
			run Client(i);
			run Net(i)
		}
		i = 0
	};
	atomic {
		timeout ->
		ending(0);
		ending(1);
		printf("EV H idle\n");
#if WANT == 65535
		assert(told[0] != none && (REQUESTS == 1 || told[1] != none)); /* nobody waits for ever */
#endif
		assert(!(broken & WANT))
	}
}
