package protocol

// Op is a command of the text and meta protocols.
type Op uint8

const (
	OpNone Op = iota
	OpGet
	OpGets
	OpGat
	OpGats
	OpSet
	OpAdd
	OpReplace
	OpAppend
	OpPrepend
	OpCAS
	OpIncr
	OpDecr
	OpDelete
	OpTouch
	OpMetaGet
	OpMetaSet
	OpMetaDelete
	OpMetaArith
	OpMetaNoop
	OpMetaDebug
	OpFlushAll
	OpVersion
	OpVerbosity
	OpQuit
	OpStats
	OpShutdown
	OpCacheMemlimit
	OpSlabs
	OpLRU
	OpLRUCrawler
	OpWatch
	OpRefreshCerts
	OpDebugTime
	opEnd
)

var opNames = [opEnd]string{
	OpNone: "unknown", OpGet: "get", OpGets: "gets", OpGat: "gat", OpGats: "gats",
	OpSet: "set", OpAdd: "add", OpReplace: "replace", OpAppend: "append", OpPrepend: "prepend", OpCAS: "cas",
	OpIncr: "incr", OpDecr: "decr", OpDelete: "delete", OpTouch: "touch",
	OpMetaGet: "mg", OpMetaSet: "ms", OpMetaDelete: "md", OpMetaArith: "ma", OpMetaNoop: "mn", OpMetaDebug: "me",
	OpFlushAll: "flush_all", OpVersion: "version", OpVerbosity: "verbosity", OpQuit: "quit", OpStats: "stats",
	OpShutdown: "shutdown", OpCacheMemlimit: "cache_memlimit", OpSlabs: "slabs", OpLRU: "lru",
	OpLRUCrawler: "lru_crawler", OpWatch: "watch", OpRefreshCerts: "refresh_certs", OpDebugTime: "debugtime",
}

// String is the command's word.
func (o Op) String() string { return opNames[o] }

// lookup finds the command of a word; commands are case-sensitive.
func lookup(word []byte) Op {
	switch string(word) {
	case "get":
		return OpGet
	case "gets":
		return OpGets
	case "gat":
		return OpGat
	case "gats":
		return OpGats
	case "set":
		return OpSet
	case "add":
		return OpAdd
	case "replace":
		return OpReplace
	case "append":
		return OpAppend
	case "prepend":
		return OpPrepend
	case "cas":
		return OpCAS
	case "incr":
		return OpIncr
	case "decr":
		return OpDecr
	case "delete":
		return OpDelete
	case "touch":
		return OpTouch
	case "mg":
		return OpMetaGet
	case "ms":
		return OpMetaSet
	case "md":
		return OpMetaDelete
	case "ma":
		return OpMetaArith
	case "mn":
		return OpMetaNoop
	case "me":
		return OpMetaDebug
	case "flush_all":
		return OpFlushAll
	case "version":
		return OpVersion
	case "verbosity":
		return OpVerbosity
	case "quit":
		return OpQuit
	case "stats":
		return OpStats
	case "shutdown":
		return OpShutdown
	case "cache_memlimit":
		return OpCacheMemlimit
	case "slabs":
		return OpSlabs
	case "lru":
		return OpLRU
	case "lru_crawler":
		return OpLRUCrawler
	case "watch":
		return OpWatch
	case "refresh_certs":
		return OpRefreshCerts
	case "debugtime":
		return OpDebugTime
	}
	return OpNone
}
