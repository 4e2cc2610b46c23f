// Package sync keeps the memory tier equal to the source: it copies the mapped tables, follows the
// log, applies committed transactions whole and in order, and copies a table again whenever the log
// alone cannot tell what became of it.
//
// It promises G1 (truth), G2 (forward only), G3 (whole transactions), G5 (no silent blind spot) and
// G6 (crash safe) for every key of a mapped table, and holds to these invariants of ARCHITECTURE.md:
// I1 (one writer), I3 (copy meets tail), I5 (schema belongs to a position), I6 (stored state trails
// memory; the argument is in checkpoint.go), I7 (publish, do not trickle).
// It knows no client: the server half asks it only who owns a key.
//
// # Where copy meets tail
//
// The naive way takes a read lock, notes the position, reads everything in one snapshot and lets the
// log run from there. It stops every writer, and one long snapshot is a burden of its own. Reading
// without the lock is wrong in two ways: a position noted before the read may count transactions that
// the storage engine has not committed yet, so that neither the SELECT nor the tail shows them; and a
// row read after a change is served, then overwritten by the replay of an older change.
//
// A table therefore passes through a bracket:
//
//  1. Its space in memory is new and hidden. From the tail's position X on, every key that the tail
//     touches (deletes too) is marked as touched.
//  2. The copy waits until the source's engines show everything up to X (binlog.Source.Visible), for
//     a dump client may be given a transaction before the engine has committed it.
//  3. Chunks are read, each in a short statement of its own. A copied row is stored only if its key
//     was not touched since X: what the tail brought is as new, or newer events will follow.
//  4. The end P1 is noted (binlog.Source.Written): everything that any chunk could have seen is at
//     or before it.
//  5. When the tail reaches P1 the space is opened, between two transactions.
//
// A statement that changes the table's definition, or its rows without row events, closes the space
// and starts over, for that table alone, once the tail has reached what is then the end of the log,
// so that rows are never decoded with a definition of another time.
package sync
