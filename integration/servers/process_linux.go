package servers

import "syscall"

// childAttributes has the kernel kill the child when the thread that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
