//go:build !amd64 && !arm64

package memory

import "unsafe"

func prefetchLine(unsafe.Pointer) {}
func prefetchItem(unsafe.Pointer) {}
