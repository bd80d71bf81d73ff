package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

func rmCommand() *cobra.Command {
	var name recordName
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm URL ID | rm URL --key KEY",
		Short: "Delete a record, so that its command can run again",
		Long: `Deletes one record: the next request with its key runs the command again, even
if it has already taken effect. The record is shown first, and read again before
it is deleted: nothing is deleted if an attempt has begun or ended in between, if
someone else has resolved the record, or while an attempt holds the command.`,
		Example: `  onlyonce records rm sqlite:onlyonce-data/onlyonce.db 3f1c7a50
  onlyonce records rm sqlite:onlyonce-data/onlyonce.db --key order-17 --yes`,
		Args: name.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return name.with(cmd.Context(), args[0], func(store storeurl.Records, r onlyonce.Record) error {
				if r.State == onlyonce.StateProcessing && r.LeaseLeft > 0 {
					return errHeld(r)
				}
				showFacts(cmd.OutOrStdout(), r)
				if !yes && !cli.Confirm(cmd, cmd.OutOrStdout(), "Delete this record, so that its command can run again?") {
					return errors.New("nothing was deleted: answer yes, or pass --yes")
				}
				if err := remove(cmd.Context(), store, r); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "deleted")
				return nil
			})
		},
	}
	name.addFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without a prompt")
	return cmd
}

// A resolver is a store in which a person can resolve a record.
type resolver interface {
	onlyonce.Store
	onlyonce.Resolver
}

// remove deletes a record if it is still as it was shown. The store makes the same
// comparison; remove makes it first so that its error can say what has changed.
func remove(ctx context.Context, store resolver, shown onlyonce.Record) error {
	now, err := store.Lookup(ctx, shown.ID)
	if err == nil {
		err = unchanged(shown, now)
	}
	if err == nil {
		err = store.Resolve(ctx, shown, onlyonce.Settlement{})
	}
	switch {
	case errors.Is(err, onlyonce.ErrInFlight):
		return errHeld(now)
	case errors.Is(err, onlyonce.ErrLost):
		return errors.New("nothing was deleted: an attempt began or ended, or someone resolved the record, since it was shown: look at it again")
	case errors.Is(err, onlyonce.ErrNotFound):
		return errors.New("nothing was deleted: the record no longer exists")
	}
	return err
}

// unchanged returns an error unless the record is as it was shown.
func unchanged(shown, now onlyonce.Record) error {
	switch {
	case now.State == onlyonce.StateProcessing && now.LeaseLeft > 0:
		return onlyonce.ErrInFlight
	case now.Fence != shown.Fence:
		return onlyonce.ErrLost
	case stateOf(now) != stateOf(shown):
		return fmt.Errorf("nothing was deleted: the record was %s when it was shown, and is %s now: look at it again", stateOf(shown), stateOf(now))
	}
	return nil
}

func errHeld(r onlyonce.Record) error {
	return fmt.Errorf("nothing was deleted: an attempt holds the command, for %s unless it renews: wait until it ends or its lease lapses", cli.Age(max(r.LeaseLeft, 0)))
}
