package binlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
)

// The commands and flags of a dump (MySQL source documentation, pages "COM_REGISTER_REPLICA", "COM_BINLOG_DUMP",
// "COM_BINLOG_DUMP_GTID").
const (
	comBinlogDump      = 0x12
	comRegisterReplica = 0x15
	comBinlogDumpGTID  = 0x1e

	dumpHeartbeatV2 = 1 << 1 // heartbeats with a 64-bit position, MySQL 8.0.26
	dumpByGTID      = 1 << 2
)

// executedPatience is how long a server may lack a transaction that it has already sent: the log is written before the
// engine commits.
const executedPatience = 5 * time.Second

// startDump readies a connection and asks for the log from s.resume on. It returns once the server has begun to send it.
func (s *Source) startDump(ctx context.Context, c *dumpConn) error {
	f, err := c.facts(ctx)
	if err != nil {
		return err
	}
	before := s.server
	if before.version == "" {
		before.gtid = !s.done.empty() || f.gtid && s.resume.file == ""
	}
	s.server = f
	s.watches.setFold(f.fold)
	s.stmt.server(f)
	if !f.logBin {
		return errors.New("the source writes no binary log: start it with log_bin and binlog_format=ROW")
	}
	byGTID, err := s.checkSource(ctx, c, before)
	if err != nil {
		s.server.identity = before.identity // resume's file is still the former server's
		return err
	}
	if before.identity != "" && before.identity != f.identity {
		s.resume = cursor{} // its file was the former server's
	}
	id, err := s.chooseServerID(ctx, c)
	if err != nil {
		return err
	}
	s.serverID.Store(id)

	period := s.cfg.Heartbeat.Nanoseconds()
	settings := fmt.Sprintf("SET @master_binlog_checksum='NONE', @source_binlog_checksum='NONE', "+
		"@master_heartbeat_period=%d, @source_heartbeat_period=%d, @slave_uuid='%s', @replica_uuid='%s'", period, period, s.uuid, s.uuid)
	if f.mariadb {
		settings += ", @mariadb_slave_capability=4"
		if byGTID {
			settings += fmt.Sprintf(", @slave_connect_state='%s', @slave_gtid_strict_mode=0, @slave_gtid_ignore_duplicates=0", s.done.String())
		}
	}
	if _, err := c.query(ctx, settings); err != nil {
		return fmt.Errorf("prepare the dump: %w", err)
	}
	if err := c.register(ctx, id); err != nil {
		return err
	}
	return s.sendDump(ctx, c, id, byGTID)
}

// register makes the source list this replica (SHOW REPLICAS).
func (c *dumpConn) register(ctx context.Context, id uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn := c.client.Conn.Conn
	if err := conn.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return err
	}
	name := "rowcached"
	b := make([]byte, 4, 64)
	b = append(b, comRegisterReplica)
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(append(b, byte(len(name))), name...)
	b = append(b, 0, 0) // user, password: none of the source's business
	b = append(b, 0, 0) // port
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	c.client.ResetSequence()
	if err := c.client.WritePacket(b); err != nil {
		return fmt.Errorf("register as a replica: %w", err)
	}
	if _, err := c.client.ReadOKPacket(); err != nil {
		return fmt.Errorf("%w: %w", errRegister, err)
	}
	return nil
}

// sendDump sends the command and waits for the first packet.
func (s *Source) sendDump(ctx context.Context, c *dumpConn, id uint32, byGTID bool) error {
	var flags uint16
	if !s.server.mariadb && s.server.number >= 80026 {
		flags |= dumpHeartbeatV2
	}
	b := make([]byte, 4, 256)
	s.at = s.resume
	s.tx = transaction{number: s.tx.number}
	s.tables.init()
	s.checksum = false
	s.xa.abandon()
	s.idleEnd = Position{}
	if byGTID || s.server.mariadb {
		s.byFile.Store(dumpByGTIDs)
	} else {
		s.byFile.Store(dumpByFile)
	}
	s.skipTo = cursor{}
	switch {
	case byGTID && !s.server.mariadb:
		set := s.done.mysql
		b = append(b, comBinlogDumpGTID)
		b = binary.LittleEndian.AppendUint16(b, flags|dumpByGTID)
		b = binary.LittleEndian.AppendUint32(b, id)
		b = binary.LittleEndian.AppendUint32(b, 0) // no file name
		b = binary.LittleEndian.AppendUint64(b, 4)
		list := set.appendBinary(nil)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
		b = append(b, list...)
	default:
		file, pos := "", uint32(4)
		if !byGTID {
			file, pos = s.resume.file, s.dumpOffset()
		}
		b = append(b, comBinlogDump)
		b = binary.LittleEndian.AppendUint32(b, pos)
		b = binary.LittleEndian.AppendUint16(b, flags)
		b = binary.LittleEndian.AppendUint32(b, id)
		b = append(b, file...)
	}
	s.firstFormat, s.starting = true, true
	c.client.ResetSequence()
	if err := c.client.WritePacket(b); err != nil {
		return fmt.Errorf("ask for the log: %w", err)
	}
	// From here on the library's connection is bypassed: every reply so far was read to its end, so nothing is left in its
	// buffer, and the server has sent nothing since.
	raw := c.client.Conn.Conn
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.reader = newPacketReader(raw, s.cfg.ReadTimeout, 1, s.counted)
	for !c.reader.whole() {
		if err := c.reader.fill(ctx); err != nil {
			return fmt.Errorf("wait for the log: %w", err)
		}
	}
	if b := c.reader.buf[c.reader.r+4 : c.reader.w]; len(b) > 0 && b[0] == 0xff {
		return fmt.Errorf("ask for the log: %w", errorPacket(b[:packetLength(c.reader.buf[c.reader.r:])]))
	}
	return nil
}

// dumpOffset gives the offset to start a dump by file at. The command has 32 bits for it: beyond them the dump starts at
// the last transaction that they can name and what was given out already is skipped.
func (s *Source) dumpOffset() uint32 {
	if s.resume.pos < s.far {
		return max(4, uint32(s.resume.pos))
	}
	s.skipTo = s.resume
	start := s.resume.anchor
	if start < 4 || start >= s.far {
		start = 4
	}
	s.at.pos = start
	return uint32(start)
}

// counted is told of each read from the network.
func (s *Source) counted(n int) {
	s.counts.publish()
	if n > 0 {
		s.counts.bytes.Add(uint64(n))
		s.counts.packet.Store(time.Now().UnixNano())
	}
}

// errorPacket reads an ERR packet.
func errorPacket(b []byte) error {
	if len(b) < 3 {
		return fmt.Errorf("%w: short error packet", errProtocol)
	}
	e := &gomysql.MyError{Code: binary.LittleEndian.Uint16(b[1:]), State: "HY000", Message: string(b[3:])}
	if strings.HasPrefix(e.Message, "#") && len(e.Message) >= 6 {
		e.State, e.Message = e.Message[1:6], e.Message[6:]
	}
	return e
}

// checkSource decides whether this server can go on from s.resume, and whether by GTID.
func (s *Source) checkSource(ctx context.Context, c *dumpConn, before serverFacts) (byGTID bool, err error) {
	f := s.server
	same := before.identity == "" || before.identity == f.identity
	if f.mariadb != (s.done != nil && s.done.maria != nil) && !s.done.empty() {
		if s.targets.several() {
			return false, fmt.Errorf("%w: this one is %s; take it out of source.failover", errFlavor, f.version)
		}
		return false, fmt.Errorf("%w: the source is another kind of server (%s); every table will be copied again", ErrPositionLost, f.version)
	}
	if f.mariadb {
		return s.checkMariaDB(ctx, c, before, same)
	}
	if s.done.empty() && s.resume.file != "" && (!f.gtid || !before.gtid) {
		// by file and offset, as before
		if !same {
			return false, fmt.Errorf("%w: another server (%s) answers, and without GTIDs its log cannot be joined to the former one's (set gtid_mode=ON); every table will be copied again",
				ErrPositionLost, f.identity)
		}
		s.done = nil
		s.server.gtid = false
		return false, nil
	}
	if !f.gtid {
		if same && s.resume.file != "" {
			// gtid_mode was turned off: go on by file; positions lose their GTIDs
			s.done = nil
			return false, nil
		}
		return false, fmt.Errorf("%w: gtid_mode is off and no file is known; every table will be copied again", ErrPositionLost)
	}
	if s.done == nil {
		s.done = &gtids{mysql: newGTIDSet()}
	}
	return true, s.checkExecuted(ctx, c)
}

// checkExecuted makes sure that a MySQL source has every transaction already given out. It may lag a moment behind what it
// has sent.
func (s *Source) checkExecuted(ctx context.Context, c *dumpConn) error {
	deadline := time.Now().Add(executedPatience)
	if s.targets.several() {
		deadline = time.Now().Add(time.Second) // it is asked again, after the others
	}
	for {
		v, err := c.row(ctx, "SELECT @@global.gtid_executed")
		if err != nil {
			return fmt.Errorf("ask for gtid_executed: %w", err)
		}
		have, err := parseGTIDs(v[0])
		if err != nil {
			return fmt.Errorf("read gtid_executed: %w", err)
		}
		if have.contains(s.done) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: the source lacks transactions already followed (reset, restored from a backup, a crash with sync_binlog=0, or another server): it has %q; every table will be copied again",
				ErrPositionLost, have.String())
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// checkMariaDB does the same for MariaDB. A position without GTIDs gets them from the file and offset.
func (s *Source) checkMariaDB(ctx context.Context, c *dumpConn, before serverFacts, same bool) (byGTID bool, err error) {
	if s.done == nil {
		if s.resume.file == "" {
			s.done = &gtids{maria: &gtidPosition{}}
		} else {
			if !same {
				return false, fmt.Errorf("%w: another server answers and no GTIDs are known; every table will be copied again", ErrPositionLost)
			}
			v, err := c.row(ctx, fmt.Sprintf("SELECT BINLOG_GTID_POS('%s', %d)", escapeString(s.resume.file), s.resume.pos))
			if err != nil {
				return false, fmt.Errorf("ask for the GTIDs of %s:%d: %w", s.resume.file, s.resume.pos, err)
			}
			if s.done, err = parseGTIDs(v[0]); err != nil {
				return false, fmt.Errorf("read the GTIDs of %s:%d: %w", s.resume.file, s.resume.pos, err)
			}
			if s.done == nil {
				s.done = &gtids{maria: &gtidPosition{}}
			}
		}
	}
	if s.done.maria.disorder {
		if !same || s.resume.file == "" {
			return false, fmt.Errorf("%w: a GTID domain's sequence went backwards, so that its last GTID does not say where to go on (set gtid_strict_mode=ON); every table will be copied again",
				ErrPositionLost)
		}
		return false, nil // by file, on the same server
	}
	v, err := c.row(ctx, "SELECT @@global.gtid_binlog_pos")
	if err != nil {
		return false, fmt.Errorf("ask for gtid_binlog_pos: %w", err)
	}
	have, err := parseGTIDs(v[0])
	if err != nil {
		return false, fmt.Errorf("read gtid_binlog_pos: %w", err)
	}
	if !have.contains(s.done) {
		return false, fmt.Errorf("%w: the source lacks transactions already followed (RESET MASTER, restored from a backup, a crash with sync_binlog=0, or another server): it has %q; every table will be copied again",
			ErrPositionLost, have.String())
	}
	if !same && before.version == "" && !s.targets.several() {
		return false, fmt.Errorf("%w: the position is of another server (%s), and MariaDB's GTIDs do not tell whether this one (%s) has the same history (if it has, name both in source.dsn and source.failover); every table will be copied again",
			ErrPositionLost, before.identity, s.server.identity)
	}
	// On the same server file and offset are exact, whatever the order of the sequence numbers.
	return !same || s.resume.file == "", nil
}

// escapeString makes a value safe between single quotes whatever the sql_mode.
func escapeString(v string) string {
	return strings.NewReplacer(`\`, "", "'", "").Replace(v)
}
