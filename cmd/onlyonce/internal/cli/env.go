package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// EnvName returns the name of the environment variable that sets a flag.
func EnvName(flag string) string {
	return "ONLYONCE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// DocumentEnv names every flag's environment variable in its help.
func DocumentEnv(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage += " [" + EnvName(f.Name) + "]" })
}

// SetFromEnv sets the flags that the command line did not set from the
// environment. A variable that is empty counts as not set.
func SetFromEnv(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		text := os.Getenv(EnvName(f.Name))
		if f.Name == "help" || f.Changed || text == "" || err != nil {
			return
		}
		if bad := cmd.Flags().Set(f.Name, text); bad != nil {
			err = Usagef("invalid value %q for the environment variable %s: %w", text, EnvName(f.Name), parseCause(bad))
		}
	})
	return err
}

// parseCause returns the cause of a flag's error, without the flag's name and value.
func parseCause(err error) error {
	if bad, ok := err.(*pflag.InvalidValueError); ok {
		return bad.Unwrap()
	}
	return err
}
