package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// readyVariable names the descriptor, in the environment of a process that -d started, on which it says that it listens.
const readyVariable = "ROWCACHED_READY_FD"

// inBackground starts the program once more with the same arguments, in a session of its own, and returns when that one
// listens. Go cannot fork: the process that stays is a new one. Until it listens its faults go to our standard error.
func inBackground(ctx context.Context, stderr io.Writer) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("-d: %w", err)
	}
	ready, said, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("-d: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), readyVariable+"=3")
	cmd.ExtraFiles = []*os.File{said}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		said.Close()
		return fmt.Errorf("-d: %w", err)
	}
	said.Close()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // it may be gone already
	defer stop()
	if n, _ := ready.Read(make([]byte, 1)); n == 1 {
		return cmd.Process.Release()
	}
	// It ended before it listened, and has said why.
	if err := cmd.Wait(); err != nil {
		return errReported
	}
	return errors.New("-d: the daemon ended before it listened")
}

// startedInBackground says whether -d has started this process.
func startedInBackground() bool { return os.Getenv(readyVariable) != "" }

// reportReady tells the process that waits in inBackground that this one listens, and lets go of its terminal. With
// -v the log goes on where it was.
func reportReady(verbose bool) error {
	fd, err := strconv.Atoi(os.Getenv(readyVariable))
	if err != nil {
		return nil
	}
	if err := os.Unsetenv(readyVariable); err != nil {
		return err
	}
	ready := os.NewFile(uintptr(fd), "ready")
	defer ready.Close()
	if !verbose {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		if err := unix.Dup2(int(null.Fd()), 2); err != nil {
			return fmt.Errorf("-d: %w", err)
		}
	}
	if _, err := ready.Write([]byte{'!'}); err != nil {
		return fmt.Errorf("-d: %w", err)
	}
	return nil
}
