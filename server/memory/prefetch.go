//go:build amd64 || arm64

package memory

import "unsafe"

// prefetchLine asks for the cache line at p; prefetchItem for three, which are the
// header, the key and what follows of a small value.
//
//go:noescape
func prefetchLine(p unsafe.Pointer)

//go:noescape
func prefetchItem(p unsafe.Pointer)
