package protocol

// Replies that carry nothing of the request.
const (
	Stored         = "STORED\r\n"
	NotStored      = "NOT_STORED\r\n"
	Exists         = "EXISTS\r\n"
	NotFound       = "NOT_FOUND\r\n"
	Deleted        = "DELETED\r\n"
	Touched        = "TOUCHED\r\n"
	OK             = "OK\r\n"
	End            = "END\r\n"
	Reset          = "RESET\r\n"
	MetaNoop       = "MN\r\n"
	MetaMiss       = "EN\r\n"
	ErrorLine      = "ERROR\r\n"
	BadChunk       = "CLIENT_ERROR bad data chunk\r\n"
	NonNumeric     = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
	TooLarge       = "SERVER_ERROR object too large for cache\r\n"
	NoMemory       = "SERVER_ERROR out of memory storing object\r\n"
	TooManyConns   = "ERROR Too many open connections\r\n"
	FlushForbidden = "CLIENT_ERROR flush_all not allowed\r\n"
)

// AppendValueHeader appends "VALUE key flags bytes\r\n", or with the item's cas
// number before the line end (gets, gats).
func AppendValueHeader(dst, key []byte, flags uint32, size int, cas uint64, withCAS bool) []byte {
	dst = append(dst, "VALUE "...)
	dst = append(dst, key...)
	dst = append(dst, ' ')
	dst = AppendUint(dst, uint64(flags))
	dst = append(dst, ' ')
	dst = AppendUint(dst, uint64(size))
	if withCAS {
		dst = append(dst, ' ')
		dst = AppendUint(dst, cas)
	}
	return append(dst, "\r\n"...)
}

// AppendStat appends "STAT name value\r\n".
func AppendStat(dst []byte, name, value string) []byte {
	dst = append(dst, "STAT "...)
	dst = append(dst, name...)
	dst = append(dst, ' ')
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}
