package protocol

import "encoding/binary"

// The first byte of a binary request and of its reply.
const (
	BinaryRequest  = 0x80
	BinaryResponse = 0x81
)

// BinaryHeaderLen is the length of a header in bytes.
const BinaryHeaderLen = 24

// Opcode is a command of the binary protocol.
type Opcode uint8

const (
	BinGet      Opcode = 0x00
	BinSet      Opcode = 0x01
	BinAdd      Opcode = 0x02
	BinReplace  Opcode = 0x03
	BinDelete   Opcode = 0x04
	BinIncr     Opcode = 0x05
	BinDecr     Opcode = 0x06
	BinQuit     Opcode = 0x07
	BinFlush    Opcode = 0x08
	BinGetQ     Opcode = 0x09
	BinNoop     Opcode = 0x0a
	BinVersion  Opcode = 0x0b
	BinGetK     Opcode = 0x0c
	BinGetKQ    Opcode = 0x0d
	BinAppend   Opcode = 0x0e
	BinPrepend  Opcode = 0x0f
	BinStat     Opcode = 0x10
	BinSetQ     Opcode = 0x11
	BinAddQ     Opcode = 0x12
	BinReplaceQ Opcode = 0x13
	BinDeleteQ  Opcode = 0x14
	BinIncrQ    Opcode = 0x15
	BinDecrQ    Opcode = 0x16
	BinQuitQ    Opcode = 0x17
	BinFlushQ   Opcode = 0x18
	BinAppendQ  Opcode = 0x19
	BinPrependQ Opcode = 0x1a
	BinTouch    Opcode = 0x1c
	BinGat      Opcode = 0x1d
	BinGatQ     Opcode = 0x1e
	BinGatK     Opcode = 0x23
	BinGatKQ    Opcode = 0x24
	BinSASLList Opcode = 0x20
	BinSASLAuth Opcode = 0x21
	BinSASLStep Opcode = 0x22
)

// Loud gives the command that o is the quiet form of; quiet tells whether it was.
func (o Opcode) Loud() (loud Opcode, quiet bool) {
	switch o {
	case BinGetQ:
		return BinGet, true
	case BinGetKQ:
		return BinGetK, true
	case BinGatQ:
		return BinGat, true
	case BinGatKQ:
		return BinGatK, true
	case BinAppendQ:
		return BinAppend, true
	case BinPrependQ:
		return BinPrepend, true
	}
	if o >= BinSetQ && o <= BinFlushQ {
		return [...]Opcode{BinSet, BinAdd, BinReplace, BinDelete, BinIncr, BinDecr, BinQuit, BinFlush}[o-BinSetQ], true
	}
	return o, false
}

// Status is the outcome in a binary reply.
type Status uint16

const (
	StatusOK           Status = 0x00
	StatusNotFound     Status = 0x01
	StatusExists       Status = 0x02
	StatusTooLarge     Status = 0x03
	StatusInvalid      Status = 0x04
	StatusNotStored    Status = 0x05
	StatusNonNumeric   Status = 0x06
	StatusAuthError    Status = 0x20
	StatusAuthContinue Status = 0x21
	StatusUnknown      Status = 0x81
	StatusNoMemory     Status = 0x82
	StatusNotSupported Status = 0x83
	StatusTemporary    Status = 0x86 // temporary failure
)

// Text is the message that memcached puts into the body of such a reply.
func (s Status) Text() string {
	switch s {
	case StatusNotFound:
		return "Not found"
	case StatusExists:
		return "Data exists for key."
	case StatusTooLarge:
		return "Too large."
	case StatusInvalid:
		return "Invalid arguments"
	case StatusNotStored:
		return "Not stored."
	case StatusNonNumeric:
		return "Non-numeric server-side value for incr or decr"
	case StatusAuthError:
		return "Auth failure."
	case StatusUnknown:
		return "Unknown command"
	case StatusNoMemory:
		return "Out of memory"
	}
	return ""
}

// Binary is a request of the binary protocol. Extras and Key alias what it was
// parsed from.
type Binary struct {
	Op     Opcode // the loud form
	Sent   Opcode // as it was sent, which a reply repeats
	Quiet  bool
	Opaque uint32
	CAS    uint64
	Body   int // bytes of the body in all: extras, key, value
	Extras []byte
	Key    []byte
}

// Value is the length of the value in bytes; negative if the lengths contradict
// each other.
func (b *Binary) Value() int { return b.Body - len(b.Extras) - len(b.Key) }

// Parse takes a request apart, up to its key. n is how many bytes that took; 0:
// it is not all there. ok is false if it is no request at all.
func (b *Binary) Parse(in []byte) (n int, ok bool) {
	if len(in) < BinaryHeaderLen {
		return 0, len(in) == 0 || in[0] == BinaryRequest
	}
	if in[0] != BinaryRequest {
		return 0, false
	}
	keyLen, extrasLen := int(binary.BigEndian.Uint16(in[2:])), int(in[4])
	n = BinaryHeaderLen + extrasLen + keyLen
	if len(in) < n {
		return 0, true
	}
	b.Sent = Opcode(in[1])
	b.Op, b.Quiet = b.Sent.Loud()
	b.Body = int(binary.BigEndian.Uint32(in[8:]))
	b.Opaque = binary.BigEndian.Uint32(in[12:])
	b.CAS = binary.BigEndian.Uint64(in[16:])
	b.Extras = in[BinaryHeaderLen : BinaryHeaderLen+extrasLen]
	b.Key = in[BinaryHeaderLen+extrasLen : n]
	return n, true
}

// Fits says whether the lengths are those that the command needs.
func (b *Binary) Fits() bool {
	e, k, v := len(b.Extras), len(b.Key), b.Value()
	switch b.Op {
	case BinVersion, BinNoop, BinQuit, BinSASLList:
		return e == 0 && k == 0 && v == 0
	case BinFlush:
		return k == 0 && v == 0 && (e == 0 || e == 4)
	case BinSet, BinAdd, BinReplace:
		return e == 8 && k > 0
	case BinGet, BinGetK, BinDelete:
		return e == 0 && k > 0 && v == 0
	case BinIncr, BinDecr:
		return e == 20 && k > 0 && v == 0
	case BinAppend, BinPrepend, BinSASLAuth, BinSASLStep:
		return e == 0 && k > 0
	case BinStat:
		return e == 0
	case BinTouch, BinGat, BinGatK:
		return e == 4 && k > 0
	}
	return true
}

// Uint32 reads a number of the extras.
func (b *Binary) Uint32(at int) uint32 { return binary.BigEndian.Uint32(b.Extras[at:]) }

// Uint64 reads a number of the extras.
func (b *Binary) Uint64(at int) uint64 { return binary.BigEndian.Uint64(b.Extras[at:]) }

// BinaryReply is the header of a reply.
type BinaryReply struct {
	Op     Opcode
	Status Status
	Opaque uint32
	CAS    uint64
}

// AppendHeader appends the header of a reply with these lengths; body counts
// extras and key too.
func (r *BinaryReply) AppendHeader(dst []byte, extras, key, body int) []byte {
	dst = append(dst, BinaryResponse, byte(r.Op))
	dst = binary.BigEndian.AppendUint16(dst, uint16(key))
	dst = append(dst, byte(extras), 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.Status))
	dst = binary.BigEndian.AppendUint32(dst, uint32(body))
	dst = binary.BigEndian.AppendUint32(dst, r.Opaque)
	return binary.BigEndian.AppendUint64(dst, r.CAS)
}
