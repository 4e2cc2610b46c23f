/*
 * Filling memory on a miss (invariant I4), for one row of a table that is not mirrored, two clients that read it over and
 * over, and every history of N log entries. Checked: what memory serves is what the source held where the tail stands
 * (G1), and no client sees the row go back, whether it is answered from memory or by its own SELECT (G2).
 *
 * Defining NO_TOUCH, NO_P, NO_VISIBLE, NO_NEWEST or NO_SHARE takes a rule out; each must then be found to fail.
 */
#define N 2
#define CLIENTS 2

bool shit[N + 1] = true;
byte sver[N + 1];
byte written, visible, tail;

bool mhit;                /* memory */
byte mver;
bool present;             /* memory knows the row or its absence */
bool busy;                /* a SELECT of the row is under way: others wait for its answer */
bool touched[CLIENTS];    /* the tail changed the row since the client's fill began */
byte newest;              /* the number of the last SELECT begun */
byte seen;                /* the newest version that any client was given */

#define SAME (mhit == shit[tail] && (!mhit || mver == sver[tail]))

#ifdef NO_TOUCH
#define UNTOUCHED true
#else
#define UNTOUCHED (!touched[me])
#endif
#ifdef NO_NEWEST
#define NEWEST true
#else
#define NEWEST (mine == newest) /* a later SELECT may have given a newer value to its client */
#endif
#ifdef NO_SHARE
#define ALONE true
#else
#define ALONE (!busy)
#endif

active proctype Source() {
	do
	:: written < N ->
		atomic {
			byte i = written + 1;
			if
			:: shit[i] = true
			:: shit[i] = false
			fi;
			sver[i] = i;
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

active proctype Tail() {
end:	do
	:: atomic { tail < written ->
			tail++;
			present = false; mhit = false; /* the item of a changed row is dropped */
			touched[0] = true; touched[1] = true
		}
	od
}

active [CLIENTS] proctype Client() {
	byte me = _pid - 3, x, v, p, mine, reads;
	bool hit;
end:	do
	:: reads < 2 ->
		reads++;
		if
		:: atomic { present -> /* answered from memory */
				assert(!mhit || mver >= seen);
				if
				:: mhit -> seen = mver
				:: else
				fi
			}
		:: atomic { !present && ALONE -> busy = true; touched[me] = false; x = tail; newest++; mine = newest }
#ifndef NO_VISIBLE
			visible >= x;
#endif
			atomic { /* the SELECT; the client has its value */
				busy = false; hit = shit[visible]; v = sver[visible];
				if
				:: hit && v > seen -> seen = v
				:: else
				fi
			}
			p = written;
#ifndef NO_P
			tail >= p;
#endif
			atomic {
				if
				:: UNTOUCHED && NEWEST -> present = true; mhit = hit; mver = v
				:: else
				fi;
				x = 0; v = 0; p = 0; mine = 0; hit = false
			}
		fi
	:: reads == 2 -> break
	od
}

/* G1 */
active proctype Truth() {
end:	atomic { present && !SAME -> assert(false) }
}
