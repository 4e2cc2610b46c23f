// Package memory is the memory tier: items off the Go heap in the form in which
// they are sent, an index that is read without locks, and the rules of expiry,
// eviction, cas and visibility.
//
// # What it promises
//
//   - A [Session] that reads between Begin and End sees every published [Batch]
//     of at most [MaxAtomicBatch] changes whole or not at all (G3), and never an older
//     state than one already seen (G2).
//   - The bytes behind an [Item] do not change and are not reused before the
//     session's Release, nor while the item is pinned (I8).
//   - One limit counts everything: index, items, free slots, retired items.
//   - Items of a table's space are never evicted; a Put that finds no room says
//     [ErrNoMemory]. Only keys of space 0, the unmapped ones, are evicted.
//
// # What it does not promise
//
// A write of a client (space 0) becomes visible key by key. Nothing is persisted.
//
// # The picture
//
//	hash(key) --> segment --> line of 8 words --> item
//	              (desc)      (tag | offset)      (header | "VALUE k f n\r\n" data "\r\n")
//
// The address space is reserved once (region.go) and cut into grains of 16 KiB.
// Runs of grains are spans (span.go): slots of one size class, or one large item.
// The index (index.go) consists of segments that grow one by one, so no growth is
// ever longer than a fraction of a millisecond. Retired slots wait in a limbo
// (epoch.go) until no session can still see them. Eviction (evict.go) works on
// whole spans in the order of S3-FIFO, which also is what keeps fragmentation
// bounded: survivors are moved together and whole spans become free.
//
// # Locks
//
// In the order in which they may be nested: publish.mu, evictor.mu, segment.mu,
// limbo.mu, pool.mu, region.mu, queues.mu. Readers take none of them. Memory is never
// allocated with a segment locked, because making room locks other segments.
package memory
