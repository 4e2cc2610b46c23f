package sync

import (
	"bytes"
	"errors"
	"time"

	"github.com/rowcached/rowcached/server"
)

var addressPrefix = []byte("@@")

// ErrNoContainer answers an @@ address whose name no table has.
var ErrNoContainer = errors.New("no table is mapped under this name")

// ErrAddress answers an @@ address whose key does not fit its table's template.
var ErrAddress = errors.New("the key does not fit the table's key template")

// Resolve implements server.Tables: it finds the owner of a request key, and rewrites "@@name.rest" to the item key,
// appended to dst. Owner 0 is no table. It is called by every server loop and takes no lock.
func (e *Engine) Resolve(dst, key []byte) (item []byte, owner server.Owner, err error) {
	o := e.set.Load()
	if o.set == nil {
		return key, 0, nil
	}
	if bytes.HasPrefix(key, addressPrefix) {
		name, rest, ok := bytes.Cut(key[len(addressPrefix):], []byte("."))
		m := o.byName[string(name)]
		if m == nil || !ok {
			return nil, 0, ErrNoContainer
		}
		item, ok = m.KeyFromText(dst, rest)
		if !ok {
			return nil, 0, ErrAddress
		}
		return item, server.Owner(o.indexOf[m] + 1), nil
	}
	m := o.set.Owner(key)
	if m == nil {
		return key, 0, nil
	}
	return key, server.Owner(o.indexOf[m] + 1), nil
}

// OwnerName implements server.Tables: the container name of an owner that Resolve gave.
func (e *Engine) OwnerName(owner server.Owner) string {
	if i := int(owner) - 1; i >= 0 && i < len(e.cfg.Specs) {
		return e.cfg.Specs[i].ContainerName()
	}
	return ""
}

// Status describes the engine now. It may be called at any time.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{
		Transactions: e.transactions.Load(), Stepped: e.stepped.Load(), RowsSeen: e.rowsSeen.Load(),
		PositionsLost: e.positionsLost.Load(), Lag: time.Duration(e.lag.Load()), Ready: len(e.tables) == len(e.cfg.Specs),
	}
	if at := e.checkpointAt.Load(); at != 0 {
		s.CheckpointAt = time.Unix(0, at)
	}
	if why := e.stale.Load(); why != nil {
		s.Withheld = why.Error()
	}
	if e.opened {
		s.Position = e.position.String()
	}
	if !e.cfg.Source.Status().Connected && !e.lastWord.IsZero() {
		s.Lag = max(s.Lag, time.Since(e.lastWord))
	}
	if p := e.lastError.Load(); p != nil {
		s.LastError = *p
	}
	for _, t := range e.tables {
		ts := TableStatus{
			Name: t.spec.ContainerName(), Table: t.name.String(), State: t.state, Since: t.since,
			RowsEstimated: t.estimated.Load(), RowsCopied: t.copied.Load(), CopyProgress: t.progress.Load(),
			Inserts: t.inserts.Load(), Updates: t.updates.Load(), Deletes: t.deletes.Load(),
			KeysSkipped: t.skipped.Load(), Verified: t.verified.load(), Resyncs: map[string]uint64{},
		}
		if t.live {
			st := e.cfg.Memory.SpaceStats(t.space)
			ts.Items, ts.Bytes = st.Items, st.Bytes
		}
		for k, v := range t.resyncs {
			ts.Resyncs[k] = v
		}
		if t.err != nil {
			ts.LastError = t.err.Error()
		}
		s.Ready = s.Ready && t.state == StateReady
		s.Tables = append(s.Tables, ts)
	}
	return s
}
