package protocol

// Fault is what is wrong with a request. The zero value is "nothing".
type Fault uint8

const (
	FaultNone          Fault = iota
	FaultUnknown             // no such command
	FaultFormat              // too few words, a key too long, a number that is none
	FaultExptime             // touch, gat, flush_all: the time is no number
	FaultDelta               // incr, decr: the delta is no number
	FaultDeleteUsage         // delete with words that mean nothing
	FaultHangup              // an HTTP request: close without a byte
	FaultFlag                // meta: unknown flag
	FaultFlagDuplicate       // meta: a flag twice
	FaultFlagToken           // meta: a flag's number is none
	FaultFlagCount           // meta: more than 20 words
	FaultFlagsArith          // ma: any fault of its flags
	FaultKeyEncoding         // meta: key is not base64
	FaultOpaque              // meta: opaque over 31 bytes
	FaultModeSet             // ms: unknown mode
	FaultModeArith           // ma: unknown mode
	faultEnd
)

var faultLines = [faultEnd]string{
	FaultNone:          "",
	FaultUnknown:       "ERROR\r\n",
	FaultFormat:        "CLIENT_ERROR bad command line format\r\n",
	FaultExptime:       "CLIENT_ERROR invalid exptime argument\r\n",
	FaultDelta:         "CLIENT_ERROR invalid numeric delta argument\r\n",
	FaultDeleteUsage:   "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
	FaultHangup:        "",
	FaultFlag:          "CLIENT_ERROR invalid flag\r\n",
	FaultFlagDuplicate: "CLIENT_ERROR duplicate flag\r\n",
	FaultFlagToken:     "CLIENT_ERROR bad token in command line format\r\n",
	FaultFlagCount:     "CLIENT_ERROR options flags are too long\r\n",
	FaultFlagsArith:    "CLIENT_ERROR invalid or duplicate flag\r\n",
	FaultKeyEncoding:   "CLIENT_ERROR error decoding key\r\n",
	FaultOpaque:        "CLIENT_ERROR opaque token too long\r\n",
	FaultModeSet:       "CLIENT_ERROR invalid mode for ms M token\r\n",
	FaultModeArith:     "CLIENT_ERROR invalid mode for ma M token\r\n",
}

// Line is the reply that names the fault, with its line end.
func (f Fault) Line() string { return faultLines[f] }
