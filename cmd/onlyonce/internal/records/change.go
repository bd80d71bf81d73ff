package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

// A change is an operator's change of the records of a selection.
type change struct {
	selection selection
	decision  cli.Decision
	yes       bool

	done       string // the change of a record: "deleted" or "resolved"
	question   string // such as "Delete %s?"
	settlement onlyonce.Settlement
	encryption storeurl.Encryption
}

func (c *change) addFlags(cmd *cobra.Command) {
	c.selection.addFlags(cmd)
	c.decision.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do it without a prompt")
	storeflags.AddEncryption(cmd.Flags(), &c.encryption)
}

// args checks the command line.
func (c *change) args(cmd *cobra.Command, args []string) error {
	if err := c.selection.args(cmd, args); err != nil {
		return err
	}
	return c.decision.Complete("ticket 4711: the bank has no such payment")
}

// run shows the records, asks, and changes them.
func (c *change) run(cmd *cobra.Command, url string) error {
	return storeurl.WithDecrypted(cmd.Context(), url, c.encryption, func(store storeurl.Editable) error {
		if err := c.checkKeys(cmd.Context(), store); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		found, held, err := c.selection.find(cmd.Context(), store, c.errHeld)
		if err != nil {
			return err
		}
		if held > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "skipped, because an attempt holds the command: %d\n", held)
		}
		if len(found) == 0 {
			fmt.Fprintf(out, "%s: 0\n", c.done)
			return nil
		}
		if _, audited := store.(onlyonce.Auditor); !audited {
			fmt.Fprintln(cmd.ErrOrStderr(), "This store keeps no audit trail: the reason, and the name of the person who decides, are not recorded.")
		}
		showSelection(out, found)
		if !c.yes {
			if !cli.OnTerminal(cmd) {
				return fmt.Errorf("nothing was %s: there is no terminal on which to confirm it: pass --yes", c.done)
			}
			if !cli.Confirm(cmd, out, fmt.Sprintf(c.question, howMany(len(found)))) {
				return fmt.Errorf("nothing was %s: answer yes, or pass --yes", c.done)
			}
		}
		return c.apply(cmd, store, found)
	})
}

// checkKeys returns an error if a response would be stored in clear in a store whose records are
// encrypted.
func (c *change) checkKeys(ctx context.Context, store onlyonce.Lister) error {
	if c.settlement.State == "" {
		return nil
	}
	if err := c.encryption.CheckKeys(ctx, store); err != nil {
		return fmt.Errorf("nothing was %s: %w", c.done, err)
	}
	return nil
}

func howMany(n int) string {
	if n == 1 {
		return "this record"
	}
	return fmt.Sprintf("these %d records", n)
}

// apply changes the records. It leaves out each record that has changed since it was shown.
func (c *change) apply(cmd *cobra.Command, store resolver, found []onlyonce.Record) error {
	done := 0
	var failed error
	for _, shown := range found {
		err := c.one(cmd.Context(), store, shown)
		switch {
		case err == nil:
			done++
		case len(found) == 1:
			return err
		default:
			failed = err
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", shown.ID.HexHash()[:shortID], err)
		}
		if cmd.Context().Err() != nil {
			break
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d\n", c.done, done)
	if failed != nil {
		return fmt.Errorf("not %s: %d of %d", c.done, len(found)-done, len(found))
	}
	return nil
}

// A resolver is a store in which a person can resolve a record.
type resolver interface {
	onlyonce.Store
	onlyonce.Resolver
}

// one changes a record if it is still as it was shown. The store makes the same comparison;
// one makes it first so that its error can say what has changed.
func (c *change) one(ctx context.Context, store resolver, shown onlyonce.Record) error {
	now, err := store.Lookup(ctx, shown.ID)
	if err == nil {
		err = c.check(shown, now)
	}
	if err == nil {
		if a, ok := store.(onlyonce.Auditor); ok {
			err = a.ResolveAudited(ctx, shown, c.settlement, c.decision.Decision)
		} else {
			err = store.Resolve(ctx, shown, c.settlement)
		}
	}
	switch {
	case errors.Is(err, onlyonce.ErrInFlight):
		return c.errHeld(now)
	case errors.Is(err, onlyonce.ErrLost):
		return fmt.Errorf("nothing was %s: an attempt began or ended, or someone resolved the record, since it was shown: look at it again", c.done)
	case errors.Is(err, onlyonce.ErrKeyExpired):
		return fmt.Errorf("nothing was %s: only the ID is left of the command, which ended: onlyonce records rm deletes the record, so that the next repeat runs the command again", c.done)
	case errors.Is(err, onlyonce.ErrNotFound):
		return fmt.Errorf("nothing was %s: the record no longer exists", c.done)
	}
	return err
}

// check returns an error unless the record is as it was shown and may be changed. With --yes, a
// person saw the record at an earlier time, and the command may have completed since.
func (c *change) check(shown, now onlyonce.Record) error {
	switch {
	case isHeld(now):
		return onlyonce.ErrInFlight
	case now.Fence != shown.Fence:
		return onlyonce.ErrLost
	case stateOf(now) != stateOf(shown):
		return fmt.Errorf("nothing was %s: the record was %s when it was shown, and is %s now: look at it again", c.done, stateOf(shown), stateOf(now))
	case c.settlement.State == onlyonce.StateFailed && !c.settlement.Final && now.State == onlyonce.StateCompleted: // --rerun
		return fmt.Errorf("nothing was %s: the command has completed, perhaps since you looked: if it did not take effect all the same, resolve it with --failed first", c.done)
	}
	return nil
}

func (c *change) errHeld(r onlyonce.Record) error {
	return fmt.Errorf("nothing was %s: an attempt holds the command for %s, or longer if it renews its lease: wait until it ends or its lease lapses", c.done, cli.Age(max(r.LeaseLeft, 0)))
}
