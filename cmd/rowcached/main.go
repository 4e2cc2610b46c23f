// Command rowcached follows a MySQL or MariaDB server as a replica and serves the mapped rows from memory over the
// memcached protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rowcached/rowcached/mapping"
)

// version is set by the build.
var version = "dev"

// Exit codes.
const (
	exitOK    = 0
	exitFault = 1 // what was asked for failed, or check found faults
	exitUsage = 2
)

// errUsage marks an error that the command line, not the world, is to blame for.
var errUsage = errors.New("usage")

// errReported marks an error that was printed already.
var errReported = errors.New("reported")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

func exitCode(err error, stderr io.Writer) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFault
	}
	fmt.Fprintf(stderr, "rowcached: %v\n", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFault
}

// run is the program: it ends when ctx does.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:           "rowcached",
		Short:         "Rows of MySQL and MariaDB, served from memory over the memcached protocol, always right",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.AddCommand(runCommand(), checkCommand(), statusCommand(), verifyCommand(), initCommand(), demoCommand(), benchCommand(), versionCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

// noArguments refuses words behind a verb, and verbs that do not exist.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		var verbs []string
		for _, c := range cmd.Commands() {
			verbs = append(verbs, c.Name())
		}
		if near := mapping.Nearest(args[0], verbs); near != "" {
			return fmt.Errorf("%w: there is no verb %q; did you mean %s?", errUsage, args[0], near)
		}
		return fmt.Errorf("%w: there is no verb %q; the verbs are %s", errUsage, args[0], strings.Join(verbs, ", "))
	}
	return fmt.Errorf("%w: %s takes no argument, so what is %q?", errUsage, cmd.CommandPath(), args[0])
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			goVersion := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = info.GoVersion
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "rowcached %s %s\n", version, goVersion)
			return err
		},
	}
}
