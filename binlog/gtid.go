package binlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// gtids is what a stream has given out by GTID: MySQL's set of transactions or MariaDB's position. One of the two is nil.
// A nil *gtids knows nothing.
type gtids struct {
	mysql *gtidSet
	maria *gtidPosition
}

// parseGTIDs reads the text of either flavor; blanks and newlines between the parts are allowed. The empty text gives nil.
func parseGTIDs(text string) (*gtids, error) {
	text = stripBlanks(text)
	if text == "" {
		return nil, nil
	}
	if strings.Contains(text, ":") {
		s, err := parseGTIDSet(text)
		if err != nil {
			return nil, err
		}
		return &gtids{mysql: s}, nil
	}
	p, err := parseGTIDPosition(text)
	if err != nil {
		return nil, err
	}
	return &gtids{maria: p}, nil
}

// contains reports whether everything in o is in g. Different flavors never contain each other; an empty o is in all.
func (g *gtids) contains(o *gtids) bool {
	switch {
	case o == nil:
		return true
	case g == nil:
		return o.empty()
	case g.mysql != nil && o.mysql != nil:
		return g.mysql.contains(o.mysql)
	case g.maria != nil && o.maria != nil:
		return g.maria.contains(o.maria)
	}
	return false
}

func (g *gtids) empty() bool {
	return g == nil || (g.mysql == nil || len(g.mysql.ranges) == 0) && (g.maria == nil || len(g.maria.domains) == 0)
}

// String gives the flavor's text.
func (g *gtids) String() string {
	switch {
	case g == nil:
		return ""
	case g.mysql != nil:
		return g.mysql.String()
	case g.maria != nil:
		return g.maria.String()
	}
	return ""
}

// gtidSource is the part of a MySQL GTID before the number.
type gtidSource struct {
	uuid [16]byte
	tag  string // "" for none, else lower case
}

// gtidRange is the transactions from start up to, not including, stop.
type gtidRange struct{ start, stop uint64 }

// gtidRanges are ascending, and no two touch.
type gtidRanges struct{ list []gtidRange }

// gtidSet is a set of MySQL transactions. The last source added to is at hand, since a log mostly has one.
type gtidSet struct {
	ranges map[gtidSource]*gtidRanges
	last   *gtidRanges
	source gtidSource // of last
}

func newGTIDSet() *gtidSet { return &gtidSet{ranges: make(map[gtidSource]*gtidRanges)} }

// parseGTIDSet reads "uuid[:tag]:from[-to]...[,...]" without blanks.
func parseGTIDSet(text string) (*gtidSet, error) {
	s := newGTIDSet()
	for part := range strings.SplitSeq(text, ",") {
		if part == "" { // MySQL allows empty parts
			continue
		}
		words := strings.Split(part, ":")
		uuid, err := parseUUID(words[0])
		if err != nil {
			return nil, err
		}
		source := gtidSource{uuid: uuid}
		if len(words) < 2 {
			return nil, fmt.Errorf("GTID set: %q has no numbers", part)
		}
		for _, w := range words[1:] {
			if w == "" {
				return nil, fmt.Errorf("GTID set: empty part in %q", part)
			}
			if w[0] < '0' || w[0] > '9' {
				if !validTag(w) {
					return nil, fmt.Errorf("GTID set: %q is neither a number nor a tag", w)
				}
				source.tag = strings.ToLower(w)
				continue
			}
			first, last, isRange := strings.Cut(w, "-")
			if !isRange {
				last = first
			}
			from, err := strconv.ParseUint(first, 10, 63)
			if err != nil {
				return nil, fmt.Errorf("GTID set: bad number %q", w)
			}
			to, err := strconv.ParseUint(last, 10, 63)
			if err != nil || to < from || from == 0 {
				return nil, fmt.Errorf("GTID set: bad range %q", w)
			}
			s.at(source).add(from, to+1)
		}
	}
	return s, nil
}

// validTag reports whether w may be a GTID tag: a letter or underscore, then up to 31 letters, digits and underscores.
func validTag(w string) bool {
	if len(w) > 32 {
		return false
	}
	for i := range len(w) {
		c := w[i] | 0x20
		if (c < 'a' || c > 'z') && w[i] != '_' && (i == 0 || w[i] < '0' || w[i] > '9') {
			return false
		}
	}
	return w != ""
}

func parseUUID(text string) (uuid [16]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != 16 {
		return uuid, fmt.Errorf("GTID set: bad UUID %q", text)
	}
	copy(uuid[:], b)
	return uuid, nil
}

func appendUUIDText(b []byte, u [16]byte) []byte {
	for i, c := range u {
		switch i {
		case 4, 6, 8, 10:
			b = append(b, '-')
		}
		b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
	}
	return b
}

// at gives the ranges of a source, made when absent.
func (s *gtidSet) at(source gtidSource) *gtidRanges {
	r := s.ranges[source]
	if r == nil {
		r = &gtidRanges{}
		s.ranges[source] = r
	}
	return r
}

// add puts one transaction into the set. It allocates only for a source or a gap that is new.
func (s *gtidSet) add(source gtidSource, number uint64) {
	if s.last == nil || s.source != source {
		s.last, s.source = s.at(source), source
	}
	s.last.add(number, number+1)
}

// has reports whether the transaction is in the set.
func (s *gtidSet) has(source gtidSource, number uint64) bool {
	r := s.last
	if r == nil || s.source != source {
		if r = s.ranges[source]; r == nil {
			return false
		}
	}
	return r.covers(gtidRange{number, number + 1})
}

// add joins [start, stop) to the ranges.
func (r *gtidRanges) add(start, stop uint64) {
	n := len(r.list)
	if n > 0 && r.list[n-1].stop == start { // the usual case: the next number
		r.list[n-1].stop = stop
		return
	}
	// i: the first range that ends at or after start; j: the first that begins after stop.
	i, _ := slices.BinarySearchFunc(r.list, start, func(g gtidRange, v uint64) int { return cmp.Compare(g.stop, v) })
	j := i
	for j < n && r.list[j].start <= stop {
		start, stop = min(start, r.list[j].start), max(stop, r.list[j].stop)
		j++
	}
	r.list = slices.Replace(r.list, i, j, gtidRange{start, stop})
}

// covers reports whether all of g is in the ranges.
func (r *gtidRanges) covers(g gtidRange) bool {
	// the first range that ends at or after g's end is the only one that can hold it
	i, _ := slices.BinarySearchFunc(r.list, g.stop, func(h gtidRange, v uint64) int { return cmp.Compare(h.stop, v) })
	return i < len(r.list) && r.list[i].start <= g.start
}

func (s *gtidSet) contains(o *gtidSet) bool {
	for source, want := range o.ranges {
		have := s.ranges[source]
		if have == nil {
			if len(want.list) == 0 {
				continue
			}
			return false
		}
		for _, g := range want.list {
			if !have.covers(g) {
				return false
			}
		}
	}
	return true
}

func (s *gtidSet) clone() *gtidSet {
	c := newGTIDSet()
	for source, r := range s.ranges {
		c.ranges[source] = &gtidRanges{list: slices.Clone(r.list)}
	}
	return c
}

// sources gives the sources in the server's order: by UUID, then by tag, no tag first.
func (s *gtidSet) sources() []gtidSource {
	list := make([]gtidSource, 0, len(s.ranges))
	for source, r := range s.ranges {
		if len(r.list) > 0 {
			list = append(list, source)
		}
	}
	slices.SortFunc(list, func(a, b gtidSource) int {
		if c := bytes.Compare(a.uuid[:], b.uuid[:]); c != 0 {
			return c
		}
		return strings.Compare(a.tag, b.tag)
	})
	return list
}

// String gives the set as the server prints it, without newlines.
func (s *gtidSet) String() string {
	var b []byte
	var uuid [16]byte
	for i, source := range s.sources() {
		if i == 0 || source.uuid != uuid {
			if i > 0 {
				b = append(b, ',')
			}
			uuid = source.uuid
			b = appendUUIDText(b, uuid)
		}
		if source.tag != "" {
			b = append(append(b, ':'), source.tag...)
		}
		for _, g := range s.ranges[source].list {
			b = strconv.AppendUint(append(b, ':'), g.start, 10)
			if g.stop > g.start+1 {
				b = strconv.AppendUint(append(b, '-'), g.stop-1, 10)
			}
		}
	}
	return string(b)
}

// appendBinary appends the set as COM_BINLOG_DUMP_GTID takes it (MySQL source documentation, "Gtid_set::encode"): the
// plain form, or the one with tags when there are any.
func (s *gtidSet) appendBinary(b []byte) []byte {
	sources := s.sources()
	tagged := slices.ContainsFunc(sources, func(g gtidSource) bool { return g.tag != "" })
	if tagged {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(sources))<<8|1<<56|1)
	} else {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(sources)))
	}
	for _, source := range sources {
		b = append(b, source.uuid[:]...)
		if tagged {
			b = append(append(b, byte(len(source.tag)<<1)), source.tag...)
		}
		list := s.ranges[source].list
		b = binary.LittleEndian.AppendUint64(b, uint64(len(list)))
		for _, g := range list {
			b = binary.LittleEndian.AppendUint64(b, g.start)
			b = binary.LittleEndian.AppendUint64(b, g.stop)
		}
	}
	return b
}

// mariaGTID is MariaDB's domain-server-sequence.
type mariaGTID struct {
	domain, server uint32
	seq            uint64
}

// gtidPosition is MariaDB's position: the last transaction of each domain, ascending by domain.
type gtidPosition struct {
	domains []mariaGTID
	// disorder: a domain's sequence went backwards (possible without gtid_strict_mode), so that a GTID no longer
	// says where in the log it stands.
	disorder bool
}

func parseGTIDPosition(text string) (*gtidPosition, error) {
	p := &gtidPosition{}
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Split(part, "-")
		if len(words) != 3 {
			return nil, fmt.Errorf("GTID position: %q is not domain-server-sequence", part)
		}
		domain, err1 := strconv.ParseUint(words[0], 10, 32)
		server, err2 := strconv.ParseUint(words[1], 10, 32)
		seq, err3 := strconv.ParseUint(words[2], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("GTID position: bad number in %q", part)
		}
		i, found := p.find(uint32(domain))
		if found {
			// a binlog state names every server of a domain; its newest is the position
			if p.domains[i].seq < seq {
				p.domains[i] = mariaGTID{uint32(domain), uint32(server), seq}
			}
			continue
		}
		p.domains = slices.Insert(p.domains, i, mariaGTID{uint32(domain), uint32(server), seq})
	}
	return p, nil
}

func (p *gtidPosition) find(domain uint32) (int, bool) {
	if len(p.domains) == 1 && p.domains[0].domain == domain {
		return 0, true
	}
	return slices.BinarySearchFunc(p.domains, domain, func(g mariaGTID, d uint32) int { return cmp.Compare(g.domain, d) })
}

// add makes g the last transaction of its domain.
func (p *gtidPosition) add(g mariaGTID) {
	i, found := p.find(g.domain)
	if !found {
		p.domains = slices.Insert(p.domains, i, g)
		return
	}
	if g.seq <= p.domains[i].seq {
		p.disorder = true
	}
	p.domains[i] = g
}

func (p *gtidPosition) contains(o *gtidPosition) bool {
	for _, g := range o.domains {
		i, found := p.find(g.domain)
		if !found || p.domains[i].seq < g.seq {
			return false
		}
	}
	return true
}

// String gives "domain-server-sequence,...".
func (p *gtidPosition) String() string {
	var b []byte
	for i, g := range p.domains {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(g.domain), 10)
		b = strconv.AppendUint(append(b, '-'), uint64(g.server), 10)
		b = strconv.AppendUint(append(b, '-'), g.seq, 10)
	}
	return string(b)
}
