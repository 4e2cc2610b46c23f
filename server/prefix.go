package server

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rowcached/rowcached/server/protocol"
)

// maxPrefixes bounds the memory of stats detail: keys come from clients.
const maxPrefixes = 10000

// prefixes counts commands by what a key has before its first ':' (stats detail).
type prefixes struct {
	on atomic.Bool
	mu sync.Mutex
	m  map[string]*prefixCount // guarded by mu
}

type prefixCount struct{ get, hit, set, del uint64 }

func (p *prefixes) count(key []byte, f func(*prefixCount)) {
	i := bytes.IndexByte(key, ':')
	if i < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.m[string(key[:i])]
	if c == nil {
		if len(p.m) == maxPrefixes {
			return
		}
		if p.m == nil {
			p.m = make(map[string]*prefixCount)
		}
		c = &prefixCount{}
		p.m[string(key[:i])] = c
	}
	f(c)
}

func (p *prefixes) get(key []byte, hit bool) {
	if p.on.Load() {
		p.count(key, func(c *prefixCount) {
			c.get++
			if hit {
				c.hit++
			}
		})
	}
}

func (p *prefixes) set(key []byte) {
	if p.on.Load() {
		p.count(key, func(c *prefixCount) { c.set++ })
	}
}

func (p *prefixes) delete(key []byte) {
	if p.on.Load() {
		p.count(key, func(c *prefixCount) { c.del++ })
	}
}

func (p *prefixes) reset() {
	p.mu.Lock()
	p.m = nil
	p.mu.Unlock()
}

func (p *prefixes) dump() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, 0, len(p.m))
	for n := range p.m {
		names = append(names, n)
	}
	slices.SortFunc(names, cmp.Compare[string])
	var b []byte
	for _, n := range names {
		c := p.m[n]
		b = append(append(b, "PREFIX "...), n...)
		for _, f := range [...]struct {
			name string
			n    uint64
		}{{" get ", c.get}, {" hit ", c.hit}, {" set ", c.set}, {" del ", c.del}} {
			b = protocol.AppendUint(append(b, f.name...), f.n)
		}
		b = append(b, "\r\n"...)
	}
	return append(b, protocol.End...)
}
