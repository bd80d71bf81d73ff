package records

import (
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

func purgeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "purge URL",
		Short: "Delete the expired records now",
		Long: `Deletes the records whose keep has passed, which no command sees any more, in batches
small enough not to make the programs wait long. Programs do that by themselves unless
they have turned it off. A record whose lease is alive, or whose outcome waits for a
person, is never deleted.`,
		Example: `  onlyonce records purge sqlite:onlyonce-data/onlyonce.db`,
		Args:    cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return storeurl.WithRecords(cmd.Context(), args[0], func(store storeurl.Records) error {
				if _, ok := store.(onlyonce.Purger); !ok {
					return errors.New("this store needs no purge: its server deletes expired records by itself")
				}
				n, err := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}).Purge(cmd.Context())
				fmt.Fprintf(cmd.OutOrStdout(), "purged: %d\n", n)
				return err
			})
		},
	}
}
