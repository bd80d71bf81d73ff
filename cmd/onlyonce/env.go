package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envName is the environment variable that stands for a flag.
func envName(flag string) string {
	return "ONLYONCE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// documentEnv names every flag's environment variable in its help.
func documentEnv(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage += " [" + envName(f.Name) + "]" })
}

// fromEnv sets the flags that the command line did not set from the
// environment. A variable that is empty counts as not set.
func fromEnv(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		text := os.Getenv(envName(f.Name))
		if f.Name == "help" || f.Changed || text == "" || err != nil {
			return
		}
		if bad := cmd.Flags().Set(f.Name, text); bad != nil {
			err = usagef("invalid value %q for the environment variable %s: %w", text, envName(f.Name), parseCause(bad))
		}
	})
	return err
}

// parseCause leaves out what a flag's error says about the flag.
func parseCause(err error) error {
	if bad, ok := err.(*pflag.InvalidValueError); ok {
		return bad.Unwrap()
	}
	return err
}
