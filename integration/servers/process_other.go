//go:build !linux

package servers

import "syscall"

// childAttributes: a test that is killed leaves its children behind here.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
