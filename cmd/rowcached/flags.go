package main

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/rowcached/rowcached/mapping"
)

// settingFlag joins a setting with the flag of its path. It only remembers: the file is read before flags count.
type settingFlag struct {
	setting config.Setting
	text    *string
}

func (f *settingFlag) String() string {
	if f.setting.Path == "" {
		return ""
	}
	return f.setting.String()
}

// Set remembers the text; the texts of a list that is given more than once are joined.
func (f *settingFlag) Set(text string) error {
	if f.text != nil && f.setting.IsList() {
		text = *f.text + "," + text
	}
	f.text = &text
	return nil
}

func (f *settingFlag) Type() string {
	if f.setting.IsBool() {
		return "bool"
	}
	return "value"
}

// configFlags is the part of a verb's command line that makes a configuration.
type configFlags struct {
	file     string
	source   string
	tables   []string
	settings []*settingFlag
	memcached
}

// register declares a flag for every setting, and the short forms.
func (f *configFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "config", "", "configuration file")
	fs.StringVar(&f.source, "source", "", "the source's DSN, short for --source.dsn: 'root@tcp(127.0.0.1:3306)/'")
	fs.StringArrayVar(&f.tables, "table", nil, "map a table with its defaults: schema.table (may be repeated)")
	for _, s := range config.Default().Settings() {
		if s.Path == "" {
			continue
		}
		sf := &settingFlag{setting: s}
		f.settings = append(f.settings, sf)
		flag := fs.VarPF(sf, s.Path, "", s.Help)
		if s.IsBool() {
			flag.NoOptDefVal = "true"
		}
	}
}

// load makes the configuration: defaults, then the file, then the environment, then flags.
func (f *configFlags) load() (*config.Config, error) {
	c := config.Default()
	if f.file != "" {
		if err := c.ReadFile(f.file); err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
	}
	if err := c.ApplyEnvironment(os.LookupEnv); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	byPath := map[string]config.Setting{}
	for _, s := range c.Settings() {
		byPath[s.Path] = s
	}
	for _, sf := range f.settings {
		if sf.text == nil {
			continue
		}
		if err := byPath[sf.setting.Path].Set(*sf.text); err != nil {
			return nil, fmt.Errorf("%w: --%s: %w", errUsage, sf.setting.Path, err)
		}
	}
	if f.source != "" {
		c.Source.DSN = f.source
	}
	for _, t := range f.tables {
		c.Tables = append(c.Tables, mapping.Spec{Table: t})
	}
	if err := f.memcached.apply(c); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if err := c.ReadPassword(); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return c, nil
}

// memcached holds memcached's own options, where they mean the same here.
type memcached struct {
	port        string
	listen      string
	socket      string
	mask        string
	memory      string
	connections string
	threads     string
	itemSize    string
	udp         string
	user        string
	verbose     int
	options     []string
	sasl        bool
	authFile    string
	tls         bool
	protocol    string
	pidFile     string
	backlog     int
	noCAS       bool
	noFlush     bool
	noWatch     bool
	noDump      bool
	shutdown    bool
	noEvict     bool
	requests    int
	large       bool
	debugTime   bool
	version     bool
	background  bool
	crawlerOff  bool
	secure      secureOptions
}

func (m *memcached) register(fs *pflag.FlagSet, file *string) {
	fs.StringVarP(&m.port, "port", "p", "", "TCP port; -1: a free one; 0: none")
	fs.StringVarP(&m.listen, "listen", "l", "", "addresses to listen on, separated by commas")
	fs.StringVarP(&m.socket, "unix-socket", "s", "", "unix socket to listen on, instead of TCP")
	fs.StringVarP(&m.mask, "unix-mask", "a", "", "access mask of the unix socket, octal")
	fs.StringVarP(&m.memory, "memory-limit", "m", "", "memory limit in MiB")
	fs.VarP(&fileOrCount{file, &m.connections}, "conn-limit", "c", "a configuration file, or (a number) the most clients at once")
	fs.StringVarP(&m.threads, "threads", "t", "", "loops")
	fs.StringVarP(&m.itemSize, "max-item-size", "I", "", "largest value, e.g. 1m")
	fs.StringVarP(&m.udp, "udp-port", "U", "", "without -p, the TCP port too; UDP is not served")
	fs.StringVarP(&m.user, "user", "u", "", "the user that the daemon runs as already; it does not change users")
	fs.CountVarP(&m.verbose, "verbose", "v", "log more; twice: still more")
	fs.StringArrayVarP(&m.options, "extended", "o", nil, "memcached's extended options that mean something here, e.g. idle_timeout=60")
	fs.BoolVarP(&m.sasl, "enable-sasl", "S", false, "require SASL over the binary protocol (users from --server.auth_file)")
	fs.StringVarP(&m.authFile, "auth-file", "Y", "", "file of user:password lines for the text login")
	fs.BoolVarP(&m.tls, "enable-ssl", "Z", false, "serve TLS")
	fs.StringVarP(&m.protocol, "protocol", "B", "", "auto, ascii or binary (default auto)")
	fs.StringVarP(&m.pidFile, "pidfile", "P", "", "write the process id here")
	fs.BoolVarP(&m.background, "daemon", "d", false, "run in the background; returns once it listens")
	fs.IntVarP(&m.backlog, "listen-backlog", "b", 0, "backlog of listening sockets")
	fs.BoolVarP(&m.noCAS, "disable-cas", "C", false, "keep no cas numbers")
	fs.BoolVarP(&m.noFlush, "disable-flush-all", "F", false, "refuse flush_all")
	fs.BoolVarP(&m.noWatch, "disable-watch", "W", false, "refuse watch")
	fs.BoolVarP(&m.noDump, "disable-dumping", "X", false, "refuse cachedump and metadump")
	fs.BoolVarP(&m.shutdown, "enable-shutdown", "A", false, "allow the shutdown command")
	fs.BoolVarP(&m.noEvict, "disable-evictions", "M", false, "answer an error when memory is full instead of evicting")
	fs.IntVarP(&m.requests, "max-reqs-per-event", "R", 0, "requests served of one connection before others get their turn")
	fs.BoolVarP(&m.large, "enable-largepages", "L", false, "accepted for memcached's sake")
	fs.BoolVarP(&m.version, "version", "V", false, "print the version of memcached whose protocol is served")
	fs.BoolVar(&m.debugTime, "debugtime", false, "allow the debugtime command, which moves the clock (for tests)")
	for _, name := range []string{"debugtime", "enable-largepages", "user", "udp-port"} {
		if err := fs.MarkHidden(name); err != nil {
			panic(err)
		}
	}
}

// fileOrCount is -c: memcached's number of connections, or the configuration file.
type fileOrCount struct{ file, count *string }

func (f *fileOrCount) String() string { return "" }
func (f *fileOrCount) Type() string   { return "value" }
func (f *fileOrCount) Set(text string) error {
	if _, err := strconv.Atoi(text); err == nil {
		*f.count = text
	} else {
		*f.file = text
	}
	return nil
}

// apply lays memcached's options over the configuration.
func (m *memcached) apply(c *config.Config) error {
	if m.connections != "" {
		n, err := strconv.Atoi(m.connections)
		if err != nil || n < 1 {
			return fmt.Errorf("-c %s: the number of connections must be positive", m.connections)
		}
		c.Server.MaxConnections = n
	}
	if m.threads != "" {
		n, err := strconv.Atoi(m.threads)
		if err != nil || n < 1 {
			return fmt.Errorf("-t %s: the number of threads must be positive", m.threads)
		}
		c.Server.Threads = n
	}
	if m.memory != "" {
		n, err := strconv.ParseInt(m.memory, 10, 32)
		if err != nil || n < 1 {
			return fmt.Errorf("-m %s: a number of MiB is needed", m.memory)
		}
		c.Memory.Limit = config.Size(n << 20)
	}
	if m.itemSize != "" {
		if err := c.Server.MaxItemSize.UnmarshalText([]byte(m.itemSize)); err != nil {
			return fmt.Errorf("-I: %w", err)
		}
		limit, hint := c.Memory.Limit, ""
		if limit == config.Default().Memory.Limit {
			limit, hint = 64<<20, " that memcached has without -m; pass -m"
		}
		if c.Server.MaxItemSize > limit/2 {
			return fmt.Errorf("-I %s: a value may not take more than half of the memory limit (%s)%s", m.itemSize, limit, hint)
		}
	}
	if m.authFile != "" {
		c.Server.AuthFile = m.authFile
	}
	switch m.protocol {
	case "", "auto", "ascii", "binary":
	default:
		return fmt.Errorf("-B %s: the protocols are auto, ascii and binary", m.protocol)
	}
	if m.sasl && (m.protocol == "auto" || m.protocol == "ascii") {
		return fmt.Errorf("-S needs the binary protocol; take out -B %s", m.protocol)
	}
	if err := sameUser(m.user); err != nil {
		return err
	}
	for _, list := range m.options {
		for o := range strings.SplitSeq(list, ",") {
			if err := m.extended(c, o); err != nil {
				return err
			}
		}
	}
	return m.addresses(c)
}

// sameUser refuses -u for another user than the one that runs the process: memcached would change to it, and to go on
// with more rights than asked for would be worse than to stop.
func sameUser(name string) error {
	if name == "" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("-u %s: %w", name, err)
	}
	if u.Uid != strconv.Itoa(os.Geteuid()) {
		return fmt.Errorf("-u %s: the daemon does not change users; start it as %s (systemd: User=%s), or take -u out", name, name, name)
	}
	return nil
}

// extended takes one word of -o.
func (m *memcached) extended(c *config.Config, option string) error {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "lru_crawler", "modern":
		m.crawlerOff = false
	case "no_lru_crawler", "no_modern":
		m.crawlerOff = true
	case "", "relaxed_privileges", "maxconns_fast", "no_maxconns_fast", "hashpower", "no_hashexpand",
		"lru_maintainer", "no_lru_maintainer", "slab_reassign", "no_slab_reassign", "slab_automove", "slab_automove_ratio", "slab_automove_window",
		"slab_automove_freeratio", "hash_algorithm", "lru_crawler_sleep", "lru_crawler_tocrawl", "hot_lru_pct", "warm_lru_pct", "hot_max_factor",
		"warm_max_factor", "temporary_ttl", "inline_ascii_resp", "no_inline_ascii_resp", "no_track_sizes", "no_drop_privileges", "drop_privileges",
		"slab_chunk_max", "watcher_logbuf_size", "worker_logbuf_size", "track_sizes", "read_buf_mem_limit", "resp_obj_mem_limit", "tail_repair_time":
		// about how memcached is built, or the way things are here anyhow
	case "idle_timeout":
		return c.Server.IdleTimeout.UnmarshalText([]byte(value))
	default:
		if known, err := m.secure.set(c, name, value); known {
			return err
		}
		return fmt.Errorf("-o %s: this option of memcached does not exist here", name)
	}
	return nil
}

// addresses makes server.listen of -p, -l, -s and -Z.
func (m *memcached) addresses(c *config.Config) error {
	if m.socket != "" {
		c.Server.Listen = []string{"unix:" + m.socket}
		return nil
	}
	port := m.port
	if port == "" && m.udp != "0" {
		port = m.udp // as with memcached, one number is for both
	}
	if port == "0" {
		c.Server.Listen = []string{config.ListenNone}
		return nil
	}
	if port == "" && m.listen == "" && !m.tls {
		return nil
	}
	switch port {
	case "":
		port = "11211"
	case "-1":
		port = "0"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("-p %s: not a port", port)
	}
	scheme := ""
	if m.tls {
		scheme = "tls:"
	}
	hosts := m.listen
	if hosts == "" {
		hosts = "127.0.0.1"
	}
	c.Server.Listen = nil
	for h := range strings.FieldsFuncSeq(hosts, func(r rune) bool { return r == ',' || r == ';' }) {
		scheme := scheme
		for _, kind := range [...]string{"notls", "mtls", "btls"} {
			if rest, ok := strings.CutPrefix(h, kind+":"); ok {
				if !m.tls {
					return fmt.Errorf("-l %s: %s means something with -Z alone", h, kind)
				}
				h, scheme = rest, strings.TrimPrefix(kind+":", "notls:")
			}
		}
		if _, _, err := net.SplitHostPort(h); err == nil {
			c.Server.Listen = append(c.Server.Listen, scheme+h)
			continue
		}
		c.Server.Listen = append(c.Server.Listen, scheme+net.JoinHostPort(h, port))
	}
	return nil
}
