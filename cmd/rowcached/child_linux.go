package main

import "syscall"

// childAttributes keeps a terminal's Ctrl-C from the child: the parent ends it.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
