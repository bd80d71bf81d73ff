package cli

import (
	"os/user"

	"github.com/onlyonce-go/onlyonce"
	"github.com/spf13/pflag"
)

// A Decision holds the values of a command's flags --reason and --as.
type Decision struct{ onlyonce.Decision }

// AddFlags declares the flags.
func (d *Decision) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&d.Reason, "reason", "", "`reason`, such as a ticket number and what you found out; required")
	f.StringVar(&d.Actor, "as", "", "`name` of the person who decides (default: the user of the operating system)")
}

// Complete checks the flags and fills in the default of --as. example is a reason.
func (d *Decision) Complete(example string) error {
	if d.Reason == "" {
		return Usagef("--reason is missing: write why, such as --reason '%s'", example)
	}
	if d.Actor == "" {
		who, err := user.Current()
		if err != nil || who.Username == "" {
			return Usagef("the name of the operating system's user is not known: pass your name with --as")
		}
		d.Actor = who.Username
	}
	if err := d.Check(); err != nil {
		return Usagef("--reason or --as can't be used: %w", err)
	}
	return nil
}
