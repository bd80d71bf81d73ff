// Package cli holds what the commands of onlyonce share on the command line: exit
// codes and the errors that lead to them, arguments, flags that may be set by the
// environment, prompts, and text for tables.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/spf13/cobra"
)

// The exit codes of the program, except those of a signal.
const (
	ExitOK           = 0
	ExitFailed       = 1 // the command failed, or doctor or check found something
	exitUsage        = 2 // the command line or the environment is invalid
	exitInconclusive = 2 // doctor or check could not examine its target
)

// A usageError is a mistake in the command line or the environment.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// Usagef returns the error of a mistake in the command line or the environment:
// the program exits with 2 and points to the help.
func Usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// A inconclusiveError is the reason why a command could not examine its target.
type inconclusiveError struct{ err error }

func (e *inconclusiveError) Error() string { return e.err.Error() }

func (e *inconclusiveError) Unwrap() error { return e.err }

// Inconclusive marks err as the reason why a command could not examine its target: the
// program exits with 2, because 1 means that something was found.
func Inconclusive(err error) error { return &inconclusiveError{err} }

// Run runs the command line args with the program's root command, prints the
// error if there is one, and returns the exit code.
func Run(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return ExitOK
	}
	fmt.Fprintln(os.Stderr, "onlyonce:", plain.Text(plain.Mask(strings.TrimPrefix(err.Error(), "onlyonce: ")), "\n\t"))
	switch {
	case errors.As(err, new(*inconclusiveError)):
		return exitInconclusive
	case !errors.As(err, new(*usageError)):
		return ExitFailed
	}
	fmt.Fprintf(os.Stderr, "Run '%s --help' for its flags and examples.\n", cmd.CommandPath())
	return exitUsage
}

// Group makes cmd a command that only contains other commands.
func Group(cmd *cobra.Command, under ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(under...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf(": did you mean %q?", near[0])
		}
		return Usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// ExactArgs rejects a command line that does not have exactly the named arguments.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0:
			return Usagef("unexpected argument %q", args[0])
		case len(args) < len(names):
			return Usagef("missing argument: %s", strings.Join(names[len(args):], " "))
		}
		return Usagef("unexpected argument %q after %s", args[len(names)], strings.Join(names, " "))
	}
}

// CompleteValues offers the values of a flag to the shell.
func CompleteValues(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag, or its values were registered twice
	}
}
