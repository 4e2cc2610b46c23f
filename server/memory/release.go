//go:build amd64 && !race

package memory

// storeRelease stores so that whoever loads the value atomically sees everything
// that was written before. On amd64 every store is that; atomic.Store would add a full
// barrier of some five nanoseconds, which only Begin needs.
func storeRelease32(p *uint32, v uint32) { *p = v }
func storeRelease64(p *uint64, v uint64) { *p = v }
