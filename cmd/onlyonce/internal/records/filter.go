package records

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/spf13/cobra"
)

// filterFlags select records by common properties.
type filterFlags struct {
	onlyonce.Filter
	olderThan time.Duration
}

// addNames declares --tenant, --operation and --key.
func (f *filterFlags) addNames(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Tenant, "tenant", "", "only records of this `tenant`")
	cmd.Flags().StringVar(&f.Operation, "operation", "", "only records of this `operation`")
	cmd.Flags().StringVar(&f.Key, "key", "", "only records with this `key`")
}

// addFlags declares the flags, except --key, --operation, --tenant and --ref.
func (f *filterFlags) addFlags(cmd *cobra.Command) {
	states.AddFlag(cmd, (*string)(&f.State), "state", "", "only records in this state (unknown includes lapsed ones)")
	cmd.Flags().DurationVar(&f.olderThan, "older-than", 0, "only records created longer than this `duration` ago by this machine's clock, such as 24h")
}

func (f *filterFlags) addRef(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Ref, "ref", "", "only records with this `ref`, which identifies what the command created")
}

// set reports whether a flag is set.
func (f *filterFlags) set() bool { return f.State != "" || f.olderThan != 0 || f.Ref != "" }

func (f *filterFlags) check() error {
	if f.State != "" {
		if err := states.CheckFlag("state", string(f.State)); err != nil {
			return err
		}
	}
	if f.olderThan < 0 {
		return cli.Usagef("--older-than is %v: write 0 or more", f.olderThan)
	}
	return nil
}

// filter returns the filter. A list without an age begins with the newest record, and
// otherwise behind an instant.
func (f *filterFlags) filter() onlyonce.Filter {
	filter := f.Filter
	if f.olderThan > 0 {
		filter.After = onlyonce.Record{CreatedAt: time.Now().Add(-f.olderThan)}
	}
	return filter
}
