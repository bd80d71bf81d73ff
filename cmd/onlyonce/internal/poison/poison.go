// Package poison is the command "onlyonce poison": it shows the events that a
// consumer has parked, and retries or discards them.
package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/onlyonce-go/onlyonce/stores/cryptstore"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce poison".
func Command() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "poison",
		Short: "Show the events that a consumer gave up on, and retry or discard them",
		Long: `Shows the events that the orders API's consumer received from a broker and gave up
on, each with its last error. They stay in the store until someone retries or
discards them. Without a broker, there are none: events that keep failing are parked
in the outbox (see onlyonce outbox).`,
		Example: `  onlyonce poison ls postgres://app@db/shop
  onlyonce poison retry postgres://app@db/shop --all`,
	}, poisonLsCommand(),
		poisonedCommand("retry", "Handle events again, in this process; those that fail again stay", (*orders.API).Retry),
		poisonedCommand("discard", "Delete events without handling them", (*orders.API).Discard))
}

// pageSize is the number of events in one page.
const pageSize = 1000

func poisonLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ls URL",
		Short:   "List the events that the consumer gave up on, oldest first",
		Example: `  onlyonce poison ls sqlite:onlyonce-data/onlyonce.db`,
		Args:    cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return storeurl.With(cmd.Context(), args[0], func(store *storeurl.Store) error {
				api, err := ordersOf(cmd.Context(), store, store.Store)
				if err != nil {
					return err
				}
				list, err := api.Poisoned(cmd.Context(), orders.Poisoned{}, pageSize)
				if err != nil {
					return err
				}
				all, err := api.PoisonedCount(cmd.Context())
				if err != nil {
					return err
				}
				out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(out, "ID\tAGE\tTENANT\tERROR")
				for _, p := range list {
					fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", cli.Cell(p.ID), cli.Age(time.Since(p.At)), cli.Cell(p.Tenant), cli.Cell(p.Error))
				}
				if err := out.Flush(); err != nil {
					return fmt.Errorf("write: %w", err)
				}
				if all > int64(len(list)) {
					fmt.Fprintf(cmd.ErrOrStderr(), "listed: the oldest %d of %d\n", len(list), all)
				}
				return nil
			})
		},
	}
}

// poisonedCommand returns a command that retries or discards parked events.
func poisonedCommand(verb, short string, decide func(*orders.API, context.Context, orders.Poisoned) error) *cobra.Command {
	var all bool
	var e storeurl.Encryption
	cmd := &cobra.Command{
		Use:     fmt.Sprintf("%s URL ID... | %[1]s URL --all", verb),
		Short:   short,
		Example: fmt.Sprintf("  onlyonce poison %s sqlite:onlyonce-data/onlyonce.db --all", verb),
		Args:    cli.SomeOrAll(&all, "which events? Give their ID after the URL, or --all; onlyonce poison ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withOrders(cmd.Context(), args[0], e, func(api *orders.API) error {
				return decidePoisoned(cmd, api, args[1:], all, decide)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all events that the consumer gave up on")
	storeflags.AddEncryption(cmd.Flags(), &e)
	return cmd
}

// decidePoisoned processes the events page by page. An ID selects the events of all
// tenants that have it. An event that is given up again meanwhile, and so comes up
// again at the end, is not tried twice.
func decidePoisoned(cmd *cobra.Command, api *orders.API, ids []string, all bool, decide func(*orders.API, context.Context, orders.Poisoned) error) error {
	done, tried, found := 0, make(map[[2]string]bool), make(map[string]bool)
	var failed []error
	var last orders.Poisoned
	for more := true; more; {
		list, err := api.Poisoned(cmd.Context(), last, pageSize)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, p := range list {
			last = p
			of := [2]string{p.ID, p.Tenant}
			if tried[of] || !all && !slices.Contains(ids, p.ID) {
				continue
			}
			tried[of], found[p.ID] = true, true
			if err := decide(api, cmd.Context(), p); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", cli.Cell(p.ID), err))
				continue
			}
			done++
		}
		more = len(list) == pageSize
	}
	fmt.Fprintf(cmd.OutOrStdout(), "done: %d\n", done)
	if !all && len(found) < len(ids) {
		failed = append(failed, errors.New("some of the events do not exist: onlyonce poison ls lists those that do"))
	}
	return errors.Join(failed...)
}

// withOrders calls fn with the orders API on an existing store, whose records it encrypts as the
// consumer does: fn writes those of the events on which it decides.
func withOrders(ctx context.Context, url string, e storeurl.Encryption, fn func(*orders.API) error) error {
	cipher, err := e.Cipher()
	if err != nil {
		return err
	}
	return storeurl.With(ctx, url, func(store *storeurl.Store) error {
		if err := e.CheckKeys(ctx, store); err != nil {
			return err
		}
		var records orders.Store = store.Store
		if cipher != nil {
			records = cryptstore.WrapTx(cipher, store.Store).(orders.Store) // it has the powers of the store
		}
		api, err := ordersOf(ctx, store, records)
		if err != nil {
			return err
		}
		return fn(api)
	})
}

// ordersOf returns the orders API on the tables of an existing store, which it leaves as they
// are.
func ordersOf(ctx context.Context, store *storeurl.Store, records orders.Store) (*orders.API, error) {
	return orders.New(ctx, store.DB, records, store.Outbox(), orders.Config{NoMigrate: true})
}
