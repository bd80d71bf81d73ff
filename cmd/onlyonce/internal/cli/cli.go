// Package cli has the parts of the command line that the commands of onlyonce share: exit
// codes and the errors that lead to them, arguments, flags that may be set by the
// environment, prompts, and text for tables.
package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/internal/visible"
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

// Misuse is a method of all errors that are such mistakes.
func (e *usageError) Misuse() {}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// Usagef returns the error of a mistake in the command line or the environment:
// the program exits with 2 and points to the help.
func Usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// An inconclusiveError is the reason why a command could not examine its target.
type inconclusiveError struct{ err error }

func (e *inconclusiveError) Error() string { return e.err.Error() }

func (e *inconclusiveError) Unwrap() error { return e.err }

// Inconclusive marks err as the reason why a command could not examine its target: the
// program exits with 2, because 1 means that something was found.
func Inconclusive(err error) error { return &inconclusiveError{err} }

// Run runs the command line args with the program's root command, prints the
// error if there is one, and returns the exit code. A command whose output can't be
// written has failed.
func Run(root *cobra.Command, args []string) int {
	out := &output{to: os.Stdout}
	root.SetOut(out)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil && out.err != nil {
		err = fmt.Errorf("write the output: %w", out.err)
	}
	if err == nil {
		return ExitOK
	}
	fmt.Fprintln(os.Stderr, "onlyonce:", visible.Text(plain.Mask(strings.TrimPrefix(err.Error(), "onlyonce: ")), "\n\t"))
	switch {
	case errors.As(err, new(*inconclusiveError)):
		return exitInconclusive
	case !errors.As(err, new(interface{ Misuse() })):
		return ExitFailed
	}
	fmt.Fprintf(os.Stderr, "Run '%s --help' for its flags and examples.\n", cmd.CommandPath())
	return exitUsage
}

// An output writes to another writer, and remembers the first error.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// Group makes cmd a command that only contains other commands.
func Group(cmd *cobra.Command, under ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(under...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// unknownCommand returns the error for a name that is not a command under cmd.
func unknownCommand(cmd *cobra.Command, name string) error {
	hint := ""
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = fmt.Sprintf(": did you mean %q?", near[0])
	}
	return Usagef("unknown command %q for %q%s", name, cmd.CommandPath(), hint)
}

// AddHelp gives root the command "help", which rejects the names of unknown commands.
func AddHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if under, rest, _ := root.Find(args); len(rest) > 0 {
					return unknownCommand(under, rest[0])
				}
				return nil
			}
		}
	}
	write := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text bytes.Buffer
		out := cmd.OutOrStdout()
		cmd.SetOut(&text)
		write(cmd, args)
		_, _ = text.WriteTo(out) // Run reports the error
	})
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
