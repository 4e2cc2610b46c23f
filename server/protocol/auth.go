package protocol

import "bytes"

// MaxToken is the longest body of a text login.
const MaxToken = 16384

// SplitToken takes the body of a text login ("user password", without its line
// end) apart.
func SplitToken(body []byte) (user, password []byte, ok bool) {
	i := bytes.IndexByte(body, ' ')
	if i < 0 {
		return nil, nil, false
	}
	return body[:i], body[i+1:], true
}

// SplitCRAM takes the answer to a challenge of SASL CRAM-MD5 apart: user, a blank, 32 hexadecimal digits (RFC 2195).
func SplitCRAM(body []byte) (user, digest []byte, ok bool) {
	i := bytes.LastIndexByte(body, ' ')
	if i < 0 || len(body)-i-1 != 32 {
		return nil, nil, false
	}
	return body[:i], body[i+1:], true
}

// SplitPlain takes the body of SASL PLAIN apart: an authorization name that is
// ignored, NUL, user, NUL, password (RFC 4616).
func SplitPlain(body []byte) (user, password []byte, ok bool) {
	i := bytes.IndexByte(body, 0)
	if i < 0 {
		return nil, nil, false
	}
	rest := body[i+1:]
	j := bytes.IndexByte(rest, 0)
	if j < 0 {
		return nil, nil, false
	}
	return rest[:j], rest[j+1:], true
}
