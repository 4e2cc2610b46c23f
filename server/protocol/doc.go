// Package protocol reads requests and writes replies of the memcached
// protocol: text, meta and binary. It works on byte slices alone: it does no
// I/O, keeps no state between requests and allocates nothing.
//
// Every parsed request aliases the bytes that it was parsed from and is valid
// as long as they are. What a request means (what is stored, who owns a key) is
// the business of package server.
//
// The behaviour followed is that of memcached 1.6.45 (doc/protocol.txt and the
// server itself); where versions differ, the choice is noted beside the code.
package protocol

// MaxKey is the longest key in bytes, in every form of the protocol.
const MaxKey = 250

// MaxLine is how many bytes of an unfinished command line are waited for. Only
// a get may be longer, because the number of its keys has no limit.
const MaxLine = 2048
