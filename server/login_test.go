package server

import (
	"strings"
	"testing"

	"github.com/rowcached/rowcached/server/memory"
)

// TestNoLoginIsNoService: a set-up in which users could not log in, and so would be served
// without, is refused.
func TestNoLoginIsNoService(t *testing.T) {
	store, err := memory.New(memory.Options{Limit: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, err = New(Config{Memory: store, Auth: ann(), Protocol: ProtocolBinary})
	if err == nil || !strings.Contains(err.Error(), "-S") {
		t.Errorf("users of the text login with the binary protocol alone: %v", err)
	}
	if _, err := New(Config{Memory: store, Auth: ann(), Protocol: ProtocolBinary, SASL: true}); err != nil {
		t.Error(err)
	}
}
