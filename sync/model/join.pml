/*
 * The join of a table's copy and the tail of the log (invariant I3), with its restart on a change of definition, for one
 * row and every history of N log entries. Checked: what is served is what the source held where the tail stands (G1), it
 * never goes back (G2), and once the source is quiet the table is served.
 *
 * Defining NO_TOUCH, NO_P1, NO_RESTART, NO_VISIBLE or NO_DEFINITION takes a rule out; each must then be found to fail.
 */
#define N   3
#define BAD 255 /* rendered with a definition of another time */

mtype = { WRITE, DELETE, TRUNCATE, ALTER, WAITING, COPYING, CATCHING, READY };

/* The source. Index i is the state after i log entries; a version is the index of the entry that wrote the row. */
mtype kind[N + 1];
bool  shit[N + 1] = true; /* the row exists */
byte  sver[N + 1];
byte  sdef[N + 1]; /* the table's definition */
byte  written;     /* entries in the log; it is sent before the engine shows it */
byte  visible;     /* entries that a SELECT sees */

/* The tail and the table. */
byte  tail;        /* entries applied */
mtype state = COPYING;
byte  generation;
bool  goalset;
byte  goal;
bool  live;        /* the tail follows the table, into a space that may be hidden */
bool  open;        /* the space is read */
bool  mhit;        /* the row in the space */
byte  mver, mdef, tdef;
bool  touched;     /* the tail changed the row since the bracket began */

#define SAME (mhit == shit[tail] && (!mhit || (mver == sver[tail] && mdef == sdef[tail])))

#ifdef NO_TOUCH
#define UNTOUCHED true
#else
#define UNTOUCHED (!touched)
#endif

active proctype Source() {
	do
	:: written < N ->
		atomic {
			byte i = written + 1;
			shit[i] = shit[written]; sver[i] = sver[written]; sdef[i] = sdef[written];
			if
			:: kind[i] = WRITE; shit[i] = true; sver[i] = i
			:: kind[i] = DELETE; shit[i] = false; sver[i] = i
			:: kind[i] = TRUNCATE; shit[i] = false; sver[i] = i
			:: kind[i] = ALTER; sdef[i] = sdef[i] + 1
			fi;
			written = i
		}
	:: written == N -> break
	od
}

active proctype Engine() {
	do
	:: visible < written -> visible++
	:: visible == N -> break
	od
}

inline restart() {
	generation++;
	live = false; open = false; mhit = false;
	state = WAITING; goalset = false
}

active proctype Tail() {
	byte at;
end:	do
	:: atomic { tail < written ->
			at = tail + 1;
			if
			:: kind[at] == WRITE && live ->
				mhit = true; mver = at; touched = true;
				mdef = (tdef == sdef[tail] -> tdef : BAD)
			:: kind[at] == DELETE && live -> mhit = false; touched = true
#ifndef NO_RESTART
			:: kind[at] == TRUNCATE || kind[at] == ALTER -> restart()
#endif
			:: else
			fi;
			tail = at
		}
	:: atomic { state == CATCHING && tail >= goal -> open = true; state = READY }
	:: atomic { state == WAITING && goalset && tail >= goal -> state = COPYING }
	od
}

/* After a restart: the end of the log is asked for, which the tail must reach before the table is copied again. */
active proctype Goal() {
	byte mine, p;
end:	do
	:: atomic { state == WAITING && !goalset -> mine = generation }
		p = written;
		atomic {
			if
			:: generation == mine -> goal = p; goalset = true
			:: else
			fi;
			mine = 0; p = 0
		}
	od
}

active proctype Copier() {
	byte mine, cdef, x, rver, rdef, p1;
	bool rhit;
end:	do
	:: atomic { state == COPYING -> mine = generation; x = tail }
#ifndef NO_DEFINITION
		/* the log may tell of a definition before the engine shows it */
		if
		:: visible >= x
		:: generation != mine -> goto end
		fi;
#endif
		cdef = sdef[visible];
		atomic { /* the bracket begins, between two transactions of the tail */
			if
			:: generation != mine -> goto end
			:: else
			fi;
			live = true; mhit = false; touched = false; tdef = cdef; x = tail
		}
#ifndef NO_VISIBLE
		if
		:: visible >= x
		:: generation != mine -> goto end
		fi;
#endif
		atomic { rhit = shit[visible]; rver = sver[visible]; rdef = (cdef == sdef[visible] -> cdef : BAD) }
		atomic {
			if
			:: generation == mine && rhit && UNTOUCHED -> mhit = true; mver = rver; mdef = rdef
			:: else
			fi
		}
		p1 = written;
		atomic {
			if
			:: generation != mine
			:: else ->
#ifdef NO_P1
				open = true; state = READY
#else
				goal = p1; state = CATCHING
#endif
			fi;
			mine = 0; cdef = 0; x = 0; rver = 0; rdef = 0; p1 = 0; rhit = false
		}
	od
}

/* G1 */
active proctype Truth() {
end:	atomic { open && !SAME -> assert(false) }
}

/* G2 */
active proctype Reader() {
	byte seen;
end:	do
	:: atomic { open && mhit && mver != seen -> assert(mver > seen); seen = mver }
	od
}

/* Nothing is left to do: the table is served, and as the source has it. */
active proctype Quiet() {
	timeout -> assert(written == N && tail == N && open && SAME)
}
