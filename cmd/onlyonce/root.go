package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/spf13/cobra"
)

// Exit codes, but for those of a signal.
const (
	exitOK     = 0
	exitFailed = 1 // it did not work, or doctor found something
	exitUsage  = 2 // the command line or the environment is wrong
	exitBlind  = 2 // doctor could not look
)

// run runs one command line and returns its exit code.
func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "onlyonce:", plain.Text(plain.Mask(strings.TrimPrefix(err.Error(), "onlyonce: ")), "\n\t"))
	switch {
	case errors.As(err, new(*blindError)):
		return exitBlind
	case !errors.As(err, new(*usageError)):
		return exitFailed
	}
	fmt.Fprintf(os.Stderr, "Run '%s --help' for its flags and examples.\n", cmd.CommandPath())
	return exitUsage
}

func rootCommand() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "onlyonce",
		Short: "Run a command once, however often it is sent",
		Long: `Onlyonce makes asking again safe: a command sent many times runs once, and
everyone who asks gets the same answer.

A store URL is sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE or
mysql://USER:PASSWORD@HOST/DATABASE. A path is taken as it is: nothing in it is
an option, and nothing in it needs escaping but for the shell.

A command that takes a store's URL takes it from ONLYONCE_STORE, or from the file
that ONLYONCE_STORE_FILE names, if it is left out. Give a URL with a password so:
every user of the machine can read the command lines of its processes.

Exit codes: 0 it worked; 1 it did not, or doctor found something; 2 the command
line or the environment is wrong, or doctor could not look.`,
		Example: `  onlyonce serve
  onlyonce records ls sqlite:onlyonce-data/onlyonce.db
  onlyonce doctor sqlite:onlyonce-data/onlyonce.db`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}, serveCommand(), proxyCommand(), relayCommand(), onStore(recordsCommand()), onStore(outboxCommand()), onStore(poisonCommand()), checkCommand(), onStore(doctorCommand()), onStore(migrateCommand()), benchCommand(), versionCommand())
	root.Version = programVersion()
	root.SetVersionTemplate(versions())
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			group(cmd)
		}
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	return root
}

// A usageError is a mistake in the command line or the environment.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// group makes a command that only holds others.
func group(cmd *cobra.Command, under ...*cobra.Command) *cobra.Command {
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
		return usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// completes offers the values of a flag to the shell.
func completes(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag, or it was registered twice
	}
}

// takes refuses a command line that has not exactly the arguments named.
func takes(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0:
			return usagef("unexpected argument %q", args[0])
		case len(args) < len(names):
			return usagef("missing argument: %s", strings.Join(names[len(args):], " "))
		}
		return usagef("unexpected argument %q after %s", args[len(names)], strings.Join(names, " "))
	}
}
