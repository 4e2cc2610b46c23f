// Package bench drives servers that speak memcached's protocol and measures them: closed-loop or paced load over many
// connections, every reply checked, latencies in a histogram, several servers in alternating rounds of one run.
//
// It promises that what it counts was right: a value that is not the key's, a reply that nobody asked for and a line
// that cannot be read are errors, never operations. It does not promise that one load thread is enough: a Round tells
// how busy the load side was.
//
// The load side is a few threads with raw sockets (loop_linux.go); net.go is its portable sibling. Both drive the same
// client, which knows the protocol and no socket.
package bench
