// Package scenario runs failure cases that are written down as text, so that adding a case needs no code.
//
// A scenario is a file in txtar form: a header of "name: value" lines, then sections that run in order.
//
//	title: Primary key update leaves the old key behind
//	case: 155
//
//	-- sql --
//	CREATE TABLE t(id INT PRIMARY KEY, v INT);
//	INSERT INTO t VALUES(6,1);
//	-- start --
//	-- sql --
//	UPDATE t SET id=7;
//	-- expect --
//	t:6 MISS
//	t:7 {"id":7,"v":1}
//
// Header lines (only title is required):
//
//	title: TEXT          what the case is
//	case: NUMBER...      its number in the collection of public reports
//	servers: KIND...     where it runs; default all kinds; a flavor (mysql, mariadb) stands for its kinds
//	options: OPTION...   server options; the case then gets a server of its own. Repeatable.
//	tables: DB.TABLE...  what is mapped; default db.t; ignored when there is a config section
//	daemon: FLAG...      further flags of "rowcached run"
//	env: NAME=VALUE...   added to the daemon's environment
//	recheck: off         see below
//	modes: MODE...       how "change" sections are run, one run of the case for each mode; default live
//
// Every step, and the options line as "options @KIND:", may carry @KIND or @FLAVOR words: it then counts
// there only. Steps:
//
//	config               the daemon's configuration file (YAML); must come first
//	sql [SESSION]        run statements as root in database db: on a connection of their own, or on a named
//	                     one that stays open. With the word "fails" an error is expected; the section's
//	                     statement must be a single one then.
//	change [SESSION]     statements as in sql, run as the mode says; see below
//	start                start the daemon and wait until it is ready; "start early" does not wait for that
//	stop, kill           end the daemon with SIGTERM (exit code 0 is required) or SIGKILL
//	restart              stop and start on the stored state; "restart fresh" removes the state between
//	pause, resume        SIGSTOP and SIGCONT to the daemon
//	wait                 wait until the daemon has read all of the source's log and says it has no lag
//	expect               "KEY VALUE" lines: VALUE is a Go string in quotes, or the bytes up to the end of the
//	                     line, or MISS. KEY may be a Go string too. Asked again until all lines hold, for at
//	                     most ten seconds.
//	twopath              "KEY KEY" lines: both keys must be hits with the same value
//	verify               wait, then every row of the mapped tables must be served as it should be, and nothing else
//	                     that ever was: compared with SELECT
//	cmd                  "> COMMAND" lines to send and "< LINE" lines of the reply to it
//	server kill|restart  end the database server with SIGKILL or SIGTERM and start it again
//	expect-log           lines that must appear in the daemon's log
//	log-without          texts that must not be in the daemon's log
//	refuse               the daemon must end with a code other than 0, and its output contain each line
//	check [CODE]         "rowcached check" must end with the code (default 0), and its output contain each line
//	cleanup              statements to run at the end whatever happened
//
// At the end the daemon is restarted on its state, then once more without it, and each time every key that
// was expected must still have the value last expected of it. So each case is a check that the log and a
// fresh copy give the same bytes (invariant I2) and that stored state is true (G6). "recheck: off" turns
// that off.
//
// A change section must be right whenever it comes. Its modes, after each of which the daemon is waited for:
//
//	live       the daemon follows
//	lagging    the daemon is stopped as it stands (SIGSTOP) meanwhile
//	restart    the daemon is ended before and started again on its state afterwards
//	reading    the daemon copies anew: the statements run before the database gets the SELECT of a mapped table
//	copying    the daemon copies anew: they run, and are in the log that it has read, before it gets the rows
//
// The case is rechecked in the mode live alone.
package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/rowcached/rowcached/integration/servers"
)

// A Scenario is one parsed case.
type Scenario struct {
	Name    string // the file's name without its ending; with @MODE unless that is live
	Title   string
	Cases   []int // numbers in the collection of public reports
	Servers []servers.Kind
	Recheck bool

	mode    string
	modes   []string
	options []option
	tables  []string
	daemon  []string
	env     []string
	steps   []step
}

// An option is a server option with the kinds it is for (none: all).
type option struct {
	text string
	only only
}

// only restricts something to kinds or flavors; empty means everywhere.
type only []string

func (o only) on(kind servers.Kind) bool {
	return len(o) == 0 || slices.Contains(o, string(kind)) || slices.Contains(o, kind.Flavor())
}

type step struct {
	verb  string
	words []string // after the verb
	only  only
	body  string
	lines []line // of a body that has been parsed
}

// A line is one parsed line of an expect, twopath or cmd section.
type line struct {
	key   string
	value string // expect: the value; twopath: the other key; cmd: the reply
	miss  bool
}

// Options returns the server options of the scenario on the kind.
func (s *Scenario) Options(kind servers.Kind) []string {
	var options []string
	for _, o := range s.options {
		if o.only.on(kind) {
			options = append(options, o.text)
		}
	}
	return options
}

// Refuses tells whether the case is one that the daemon refuses.
func (s *Scenario) Refuses() bool {
	return slices.ContainsFunc(s.steps, func(st step) bool { return st.verb == "refuse" || st.verb == "check" && len(st.words) > 0 })
}

// Variants gives the scenario once for each of its modes.
func (s *Scenario) Variants() []*Scenario {
	var all []*Scenario
	for _, mode := range s.modes {
		v := *s
		v.mode = mode
		if mode != "live" {
			v.Name += "@" + mode
			v.Recheck = false
		}
		all = append(all, &v)
	}
	return all
}

// Load parses the scenario files of a folder, in the order of their names.
func Load(dir string) ([]*Scenario, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no scenario in %s", dir)
	}
	var all []*Scenario
	var failed []error
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s, err := Parse(strings.TrimSuffix(filepath.Base(path), ".txt"), text)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", path, err))
			continue
		}
		all = append(all, s)
	}
	return all, errors.Join(failed...)
}

// Parse parses one scenario. Nothing unknown is skipped.
func Parse(name string, text []byte) (*Scenario, error) {
	archive := txtar.Parse(text)
	s := &Scenario{Name: name, Recheck: true}
	if err := s.header(string(archive.Comment)); err != nil {
		return nil, err
	}
	if s.Title == "" {
		return nil, errors.New("no title")
	}
	if len(s.Servers) == 0 {
		s.Servers = servers.Kinds()
	}
	if len(s.tables) == 0 {
		s.tables = []string{"db.t"}
	}
	if len(s.modes) == 0 {
		s.modes = []string{"live"}
	}
	for i, file := range archive.Files {
		st, err := parseStep(file)
		if err == nil && st.verb == "config" && slices.ContainsFunc(s.steps, func(before step) bool { return before.verb != "config" }) {
			err = errors.New("config must come first")
		}
		if err != nil {
			return nil, fmt.Errorf("section %d (%s): %w", i+1, file.Name, err)
		}
		s.steps = append(s.steps, st)
	}
	if len(s.steps) == 0 {
		return nil, errors.New("no section")
	}
	return s, nil
}

func (s *Scenario) header(text string) error {
	for row := range strings.Lines(text) {
		row = strings.TrimSpace(row)
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		name, value, ok := strings.Cut(row, ":")
		value = strings.TrimSpace(value)
		if !ok {
			return fmt.Errorf("header line %q is not NAME: VALUE", row)
		}
		words, where, err := conditions(strings.Fields(name))
		if err != nil || len(words) != 1 {
			return fmt.Errorf("header line %q: %w", row, errors.Join(err, errors.New("want NAME: VALUE or NAME @KIND: VALUE")))
		}
		if len(where) > 0 && words[0] != "options" {
			return fmt.Errorf("header line %q: only options may have a condition", row)
		}
		switch words[0] {
		case "title":
			s.Title = value
		case "case":
			for _, word := range strings.Fields(value) {
				number, err := strconv.Atoi(word)
				if err != nil {
					return fmt.Errorf("header line %q: %w", row, err)
				}
				s.Cases = append(s.Cases, number)
			}
		case "modes":
			s.modes = strings.Fields(value)
			for _, mode := range s.modes {
				if !slices.Contains([]string{"live", "lagging", "restart", "reading", "copying"}, mode) {
					return fmt.Errorf("header line %q: no mode %q", row, mode)
				}
			}
		case "servers":
			for _, word := range strings.Fields(value) {
				kinds := only{word}
				known := false
				for _, kind := range servers.Kinds() {
					if kinds.on(kind) {
						s.Servers, known = append(s.Servers, kind), true
					}
				}
				if !known {
					return fmt.Errorf("no server kind %q", word)
				}
			}
		case "options":
			for _, word := range strings.Fields(value) {
				s.options = append(s.options, option{word, where})
			}
		case "tables":
			s.tables = append(s.tables, strings.Fields(value)...)
		case "daemon":
			s.daemon = append(s.daemon, strings.Fields(value)...)
		case "env":
			s.env = append(s.env, strings.Fields(value)...)
		case "recheck":
			if value != "off" {
				return fmt.Errorf("header line %q: the only value is off", row)
			}
			s.Recheck = false
		default:
			return fmt.Errorf("header line %q: no such name", row)
		}
	}
	return nil
}

// conditions parts words into those that start with @, without it, and the others.
func conditions(words []string) (rest []string, where only, err error) {
	for _, word := range words {
		name, ok := strings.CutPrefix(word, "@")
		if !ok {
			rest = append(rest, word)
			continue
		}
		if !slices.ContainsFunc(servers.Kinds(), only{name}.on) {
			return nil, nil, fmt.Errorf("no server kind %q", name)
		}
		where = append(where, name)
	}
	return rest, where, nil
}

func parseStep(file txtar.File) (step, error) {
	words, where, err := conditions(strings.Fields(file.Name))
	if err != nil {
		return step{}, err
	}
	if len(words) == 0 {
		return step{}, errors.New("no verb")
	}
	st := step{verb: words[0], words: words[1:], only: where, body: string(file.Data)}
	allowed := func(words ...string) error {
		for _, w := range st.words {
			if !slices.Contains(words, w) {
				return fmt.Errorf("word %q is not known here", w)
			}
		}
		return nil
	}
	switch st.verb {
	case "config", "cleanup", "expect-log", "log-without", "refuse":
		err = allowed()
	case "sql", "change":
		// any one word names a session
	case "start":
		err = errors.Join(allowed("early"), st.empty())
	case "restart":
		err = errors.Join(allowed("fresh"), st.empty())
	case "stop", "kill", "pause", "resume", "wait", "verify":
		err = errors.Join(allowed(), st.empty())
	case "server":
		if len(st.words) != 1 {
			err = errors.New("want one word")
		}
		err = errors.Join(err, allowed("kill", "restart"), st.empty())
	case "check":
		if len(st.words) > 0 {
			_, err = strconv.Atoi(st.words[0])
		}
	case "expect":
		err = errors.Join(allowed(), st.parsePairs(expectation))
	case "twopath":
		err = errors.Join(allowed(), st.parsePairs(func(key, rest string) (line, error) {
			other, after, err := word(rest)
			if err == nil && strings.TrimSpace(after) != "" {
				err = errors.New("want two keys")
			}
			return line{key: key, value: other}, err
		}))
	case "cmd":
		err = errors.Join(allowed(), st.parseCommands())
	default:
		err = errors.New("no such step")
	}
	return st, err
}

func (st *step) empty() error {
	if strings.TrimSpace(st.body) != "" {
		return errors.New("this step has no body")
	}
	return nil
}

func (st *step) parsePairs(parse func(key, rest string) (line, error)) error {
	for row := range strings.Lines(st.body) {
		row = strings.TrimRight(row, "\r\n")
		if strings.TrimSpace(row) == "" {
			continue
		}
		key, rest, err := word(row)
		if err != nil {
			return fmt.Errorf("line %q: %w", row, err)
		}
		l, err := parse(key, rest)
		if err != nil {
			return fmt.Errorf("line %q: %w", row, err)
		}
		st.lines = append(st.lines, l)
	}
	if len(st.lines) == 0 {
		return errors.New("no line")
	}
	return nil
}

func expectation(key, rest string) (line, error) {
	switch {
	case rest == "":
		return line{}, errors.New(`no value (MISS for a miss, "" for an empty value)`)
	case rest == "MISS":
		return line{key: key, miss: true}, nil
	case strings.HasPrefix(rest, `"`):
		value, err := strconv.Unquote(rest)
		return line{key: key, value: value}, err
	}
	return line{key: key, value: rest}, nil
}

// word cuts the first word of a row off, which may be a Go string in quotes.
func word(row string) (first, rest string, err error) {
	row = strings.TrimLeft(row, " ")
	if strings.HasPrefix(row, `"`) {
		quoted, err := strconv.QuotedPrefix(row)
		if err != nil {
			return "", "", err
		}
		first, err = strconv.Unquote(quoted)
		return first, strings.TrimPrefix(row[len(quoted):], " "), err
	}
	first, rest, _ = strings.Cut(row, " ")
	return first, rest, nil
}

func (st *step) parseCommands() error {
	for row := range strings.Lines(st.body) {
		row = strings.TrimRight(row, "\r\n")
		switch {
		case strings.HasPrefix(row, "> "):
			st.lines = append(st.lines, line{key: row[2:]})
		case strings.HasPrefix(row, "< ") && len(st.lines) > 0:
			st.lines[len(st.lines)-1].value += row[2:] + "\r\n"
		case strings.TrimSpace(row) != "":
			return fmt.Errorf("line %q is neither > COMMAND nor < REPLY", row)
		}
	}
	return nil
}
