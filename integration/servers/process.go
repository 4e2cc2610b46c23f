package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A process is one running child.
//
// The kernel kills it when the thread that started it ends (PR_SET_PDEATHSIG, on Linux). That covers a test binary
// which panics, is killed or times out and so never runs its cleanups. The thread, not the process, is what
// counts: a goroutine that moved on would leave the child to the fate of whichever thread the runtime
// retires next. So the goroutine that starts a child keeps its thread until it has reaped the child.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has been reaped
	err  error         // what Wait returned; readable once done is closed
}

// launch starts cmd. The caller must call kill, or stop and wait, in the end.
func launch(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = childAttributes()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() { // owned by p: kill and wait wait for done
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// exited tells whether the child has ended.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig; to a child that has ended it does nothing.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to process %d: %w", sig, p.pid(), err)
	}
	return nil
}

// wait waits for the child's end, and tells whether it came within the time limit.
func (p *process) wait(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// kill ends the child with SIGKILL and reaps it. A stopped child dies too.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// exitCode returns the exit code of a child that has ended, -1 if a signal ended it.
func (p *process) exitCode() int { return p.cmd.ProcessState.ExitCode() }

// tail returns the last lines of a log.
func tail(log string, lines int) string {
	all := strings.Split(strings.TrimRight(log, "\n"), "\n")
	if len(all) > lines {
		all = append([]string{fmt.Sprintf("... %d lines before", len(all)-lines)}, all[len(all)-lines:]...)
	}
	return strings.Join(all, "\n")
}
