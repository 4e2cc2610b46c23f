package binlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-sql-driver/mysql"
)

var (
	errProtocol     = errors.New("broken replication protocol")
	errBrokenPacket = errors.New("connection lost inside a packet")
	errDuplicateID  = errors.New("another replica uses this server id")
	errStreamEnd    = errors.New("the source ended the log")
	errStuck        = errors.New("the source does not send what it logs")
	errGTIDMode     = errors.New("gtid_mode changed")
	errRegister     = errors.New("register as a replica") // refused after the login
)

// The server's error codes that decide what to do.
const (
	codeAccessDenied      = 1045
	codeParse             = 1064
	codeUnknownCommand    = 1047
	codeUnknownVariable   = 1193
	codeSpecificAccess    = 1227
	codeDumpFailed        = 1236
	codeGTIDFirst         = 1943 // MariaDB's errors about a GTID position that its log cannot serve...
	codeGTIDLast          = 1955 // ...are in this range
	codeGTIDUnexpected    = 1941
	codeSecureTransport   = 3159
	codeSameServerID      = 4052
	codeCannotUserPlugin  = 1524
	codeAuthPlugin        = 1251
	codePasswordExpired   = 1862
	codeAccountLocked     = 3118
	codeHostBlocked       = 1129
	codeHostNotPrivileged = 1130
)

// serverFault finds the error that a server answered with, whichever library read it.
func serverFault(err error) (code uint16, message string, ok bool) {
	for err != nil {
		switch e := err.(type) {
		case *gomysql.MyError:
			return e.Code, e.Message, true
		case *mysql.MySQLError:
			return e.Number, e.Message, true
		case interface{ Unwrap() []error }:
			for _, x := range e.Unwrap() {
				if code, message, ok = serverFault(x); ok {
					return code, message, true
				}
			}
			return 0, "", false
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Cause() error }: // the dump library's error package
			next := e.Cause()
			if next == err {
				return 0, "", false
			}
			err = next
		default:
			return 0, "", false
		}
	}
	return 0, "", false
}

func isUnknownVariable(err error) bool {
	code, _, ok := serverFault(err)
	return ok && code == codeUnknownVariable
}

func isSyntaxError(err error) bool {
	code, _, ok := serverFault(err)
	return ok && (code == codeParse || code == codeUnknownCommand)
}

func isDenied(err error) bool {
	code, _, ok := serverFault(err)
	return ok && (code == codeSpecificAccess || code == codeAccessDenied || code == 1142 || code == 1044)
}

// fault is a class of error: what to do about it is the same for all of one class.
type fault uint8

const (
	faultNone      fault = iota
	faultNetwork         // cut, refused, timed out, shut down: try again soon
	faultAccess          // not let in: try again seldom
	faultDuplicate       // another replica has our id
	faultServer          // the server refuses for another reason: try again, slower and slower
	faultBehind          // this server cannot go on from here, another one may: try again soon
	faultPosition        // ErrPositionLost
)

func faultClass(err error) fault {
	switch {
	case err == nil:
		return faultNone
	case errors.Is(err, ErrPositionLost):
		return faultPosition
	case errors.Is(err, errDuplicateID):
		return faultDuplicate
	case errors.Is(err, errBehind), errors.Is(err, errFlavor):
		return faultBehind
	}
	code, _, ok := serverFault(err)
	if !ok {
		return faultNetwork
	}
	switch code {
	case codeAccessDenied, codeSpecificAccess, codeSecureTransport, codeCannotUserPlugin, codeAuthPlugin,
		codePasswordExpired, codeAccountLocked, codeHostBlocked, codeHostNotPrivileged, 1044, 1142:
		return faultAccess
	case 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1205, 1317, 1927, 3169, 4031:
		return faultNetwork // shutdown, aborted or killed connection
	}
	return faultServer
}

// judge turns what a server said into what it means here: it wraps ErrPositionLost or errDuplicateID around it, or says
// which setting helps.
func (s *Source) judge(err error) error {
	code, message, ok := serverFault(err)
	if !ok {
		return err
	}
	switch {
	case code == codeSameServerID,
		code == codeDumpFailed && strings.Contains(message, "same server_uuid/server_id"),
		code == codeDumpFailed && strings.Contains(message, "same server_id"):
		id := s.serverID.Load()
		if s.cfg.ServerID == 0 {
			s.serverID.Store(0) // chosen anew
			return fmt.Errorf("%w: %d was chosen at random and will be chosen anew: %w", errDuplicateID, id, err)
		}
		return fmt.Errorf("%w: give each replica a server_id of its own (this one has %d): %w", errDuplicateID, id, err)
	case code == codeDumpFailed:
		return s.judgeDump(message, err)
	case code >= codeGTIDFirst && code <= codeGTIDLast, code == codeGTIDUnexpected:
		return fmt.Errorf("%w: the source's log cannot serve this GTID position; every table will be copied again (keep logs longer: binlog_expire_logs_seconds): %w",
			ErrPositionLost, err)
	case code == codeAccessDenied && !errors.Is(err, errRegister):
		return fmt.Errorf("correct the password (source.password_file is read at each connection) or the account of the DSN: %w", err)
	case code == codeSpecificAccess || code == codeAccessDenied || code == 1044 || code == 1142:
		if s.server.mariadb {
			return fmt.Errorf("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO the account of the DSN: %w", err)
		}
		return fmt.Errorf("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the account of the DSN: %w", err)
	case code == codeSecureTransport:
		return fmt.Errorf("the source demands TLS: set source.tls.mode: %w", err)
	}
	return err
}

// judgeDump sorts the many meanings of error 1236.
func (s *Source) judgeDump(message string, err error) error {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(message, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("max_allowed_packet"):
		return fmt.Errorf("an event is larger than the source sends: SET GLOBAL max_allowed_packet=1073741824 on the source: %w", err)
	case has("anonymous transaction"):
		return fmt.Errorf("%w: %w", errGTIDMode, err)
	case has("Binary log is not open"):
		return fmt.Errorf("the source writes no binary log: start it with log_bin: %w", err)
	case has("server_id", "Misconfigured"):
		return fmt.Errorf("the source refuses this replica; check server_id on both sides: %w", err)
	case has("purged", "Could not find first log", "could not find", "not found", "missing"):
		return fmt.Errorf("%w: the source has purged its log up to here; every table will be copied again (keep logs longer: binlog_expire_logs_seconds): %w",
			ErrPositionLost, err)
	case has("has more GTIDs", "more GTIDs than"):
		return fmt.Errorf("%w: the source lacks transactions already followed (reset, restored from a backup, or another server); every table will be copied again: %w",
			ErrPositionLost, err)
	case has("position > file size", "impossible position", "bogus data", "truncated", "event read from binlog"):
		return fmt.Errorf("%w: the source's log does not match (reset, restored, or cut by a crash with sync_binlog=0); every table will be copied again: %w",
			ErrPositionLost, err)
	}
	return fmt.Errorf("%w: every table will be copied again: %w", ErrPositionLost, err)
}

// backoff paces attempts: longer from one to the next, never in step with other clients.
type backoff struct {
	attempt int
	class   fault
	next    time.Time // when to try again
}

// failed says that an attempt, or a connection, ended with err.
func (b *backoff) failed(err error) {
	class := faultClass(err)
	if class != b.class {
		b.class, b.attempt = class, 0
	}
	first, most := 50*time.Millisecond, 5*time.Second
	switch class {
	case faultAccess:
		first, most = 2*time.Second, 30*time.Second
	case faultDuplicate:
		first, most = time.Second, 30*time.Second
	case faultBehind:
		first, most = 500*time.Millisecond, 3*time.Second
	case faultServer:
		first, most = time.Second, 15*time.Second
	}
	d := most
	if b.attempt < 16 {
		d = min(most, first<<b.attempt)
	}
	b.attempt++
	b.next = time.Now().Add(d/2 + rand.N(d/2+1))
}

// due gives how long to wait before the next attempt.
func (b *backoff) due() time.Duration { return max(0, time.Until(b.next)) }

// duplicateCalm is how long a connection must last before two replicas with one id are no longer thought to evict each other
// in turn.
const duplicateCalm = time.Minute

// healthy says that the connection works: the next failure is the first.
func (s *Source) healthy() {
	b := &s.retry
	if b.attempt == 0 || b.class == faultDuplicate && time.Since(b.next) < duplicateCalm {
		return
	}
	duplicate := b.class == faultDuplicate
	*b = backoff{}
	if duplicate {
		s.mu.Lock()
		s.status.LastError = nil
		s.mu.Unlock()
	}
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
