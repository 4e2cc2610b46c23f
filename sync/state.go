package sync

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
)

// A state folder holds two files that count, and perhaps one pair that was set aside:
//
//	state          small: what the rows file holds, and where the log goes on from there
//	rows-N         large: the rows (rowsfile.go)
//	state.aside, rows.aside   what could not be used, and why is in the log
//
// state is what commits: it is written aside, synced and renamed over the old one, and names its rows file, which was synced
// before and never changes. Its first line is "rowcached state VERSION CHECKSUM", the checksum (CRC-32C, hexadecimal) being
// that of all that follows, which is JSON.
const (
	stateVersion = 1
	stateFile    = "state"
	rowsPrefix   = "rows-"

	// renderVersion is raised when a release makes other bytes of the same row: items of another one are not taken over.
	renderVersion = 1

	casReserve = 1 << 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stored is the body of the state file.
type stored struct {
	WrittenAt time.Time       `json:"written_at"`
	From      binlog.Position `json:"from"` // the log from here on, over the rows, gives memory as it was at To and later (I6)
	To        binlog.Position `json:"to"`   // everything up to here was applied, and may have been served
	Seeds     [2]uint64       `json:"seeds"`
	CAS       uint64          `json:"cas"` // above every cas number that was given out
	Rows      storedRows      `json:"rows"`
	Tables    []storedTable   `json:"tables"` // by the number that the rows file calls them
}

type storedRows struct {
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Checksum uint32 `json:"checksum"` // of the blocks' checksums
	Rows     int64  `json:"rows"`
}

type storedTable struct {
	Spec   string        `json:"spec"` // the mapping's fingerprint; "": the rows are not to be used
	Table  *binlog.Table `json:"table"`
	Rows   int64         `json:"rows"`
	Mapped string        `json:"mapped"` // schema.table
}

// fingerprint tells mappings apart that give other items of the same rows.
func fingerprint(s mapping.Spec) string {
	s.Load, s.Policy = "", mapping.PolicySpec{}
	b, err := json.Marshal(s)
	if err != nil {
		panic("sync: a mapping has no JSON form: " + err.Error())
	}
	return fmt.Sprintf("%d %s", renderVersion, b)
}

// StateDir is a folder in which what outlives the process is kept. Make it with OpenState.
type StateDir struct {
	dir  string
	log  *slog.Logger
	lock *os.File
	was  *stored // what the folder held when it was opened; nil: nothing that can be used
	last *stored // what it holds now
}

// OpenState takes a folder, which it makes if need be, for this process alone. A state file that cannot be used is set
// aside; that is no error.
func OpenState(dir string, log *slog.Logger) (*StateDir, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &StateDir{dir: dir, log: log}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state.dir: %w; make it a folder that this user may write to", err)
	}
	lock, err := os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state.dir: %w; make it a folder that this user may write to", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("state.dir: another rowcached uses %s; give each a folder of its own: %w", dir, err), lock.Close())
	}
	s.lock = lock
	body, err := s.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.setAside(err)
	default:
		s.was, s.last = body, body
	}
	s.tidy()
	if err := s.passCAS(uint64(time.Now().UnixNano())); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// passCAS makes sure that the cas numbers of this process are not given out again by the next one, though the clock stands
// still and this one may end before it writes anything.
func (s *StateDir) passCAS(now uint64) error {
	if s.was == nil || s.was.CAS < now {
		return nil
	}
	next := *s.was
	next.CAS += casReserve
	return s.write(&next)
}

// Close gives the folder back.
func (s *StateDir) Close() error { return s.lock.Close() }

// Seeds and CASFloor are what memory.Options wants of the earlier process.
func (s *StateDir) Seeds() (seeds [2]uint64) {
	if s.was != nil {
		seeds = s.was.Seeds
	}
	return seeds
}

// CASFloor is above every cas that an earlier process gave out.
func (s *StateDir) CASFloor() uint64 {
	if s.was != nil {
		return s.was.CAS
	}
	return 0
}

func (s *StateDir) path(name string) string { return filepath.Join(s.dir, name) }

// read reads and checks the state file, and that the rows file is there.
func (s *StateDir) read() (*stored, error) {
	b, err := os.ReadFile(s.path(stateFile))
	if err != nil {
		return nil, err
	}
	line, rest, ok := bytes.Cut(b, []byte("\n"))
	var version int
	var sum uint32
	if _, err := fmt.Sscanf(string(line), "rowcached state %d %x", &version, &sum); !ok || err != nil {
		return nil, errors.New("it does not begin as a state file does")
	}
	if version != stateVersion {
		return nil, fmt.Errorf("it has version %d, and this program knows version %d", version, stateVersion)
	}
	if crc32.Checksum(rest, castagnoli) != sum {
		return nil, errors.New("its checksum is wrong: it is truncated or corrupt")
	}
	var body stored
	if err := json.Unmarshal(rest, &body); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	info, err := os.Stat(s.path(body.Rows.File))
	switch {
	case err != nil:
		return nil, fmt.Errorf("its rows file is not there: %s", err)
	case info.Size() != body.Rows.Bytes:
		return nil, fmt.Errorf("its rows file %s has %d bytes instead of %d", body.Rows.File, info.Size(), body.Rows.Bytes)
	}
	return &body, nil
}

// write makes body the folder's state, all of it or nothing.
func (s *StateDir) write(body *stored) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	b = append(b, '\n')
	text := append(fmt.Appendf(nil, "rowcached state %d %08x\n", stateVersion, crc32.Checksum(b, castagnoli)), b...)
	if err := writeSynced(s.path(stateFile+".new"), text); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	if err := os.Rename(s.path(stateFile+".new"), s.path(stateFile)); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	if err := syncFolder(s.dir); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	s.last = body
	s.tidy()
	return nil
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncFolder makes the names in a folder outlive a power cut.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// setAside takes the state out of use, under a name that shows it, and says why and what happens now.
func (s *StateDir) setAside(reason error) {
	aside := s.path(stateFile + ".aside")
	err := os.Rename(s.path(stateFile), aside)
	if s.last != nil {
		err = errors.Join(err, os.Rename(s.path(s.last.Rows.File), s.path("rows.aside")))
	}
	s.was, s.last = nil, nil
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	s.log.Warn("the stored state is not used: it was set aside, and every table is copied from the source", "reason", reason, "file", aside)
	if err != nil {
		s.log.Error("the stored state could not be renamed; remove it by hand", "dir", s.dir, "err", err)
	}
}

// forget removes the state: memory was made anew from the source, and what is stored is older than a break in its history.
func (s *StateDir) forget() {
	if s.last == nil {
		return
	}
	if err := os.Remove(s.path(stateFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("the stored state could not be removed; remove it by hand", "dir", s.dir, "err", err)
	}
	s.last = nil
	s.tidy()
}

// tidy removes rows files that the state does not name.
func (s *StateDir) tidy() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.log.Warn("the state folder cannot be read", "err", err)
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), rowsPrefix) || s.last != nil && s.last.Rows.File == e.Name() {
			continue
		}
		if err := os.Remove(s.path(e.Name())); err != nil {
			s.log.Warn("an old rows file cannot be removed", "err", err)
		}
	}
}
