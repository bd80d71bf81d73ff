package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

func lsCommand() *cobra.Command {
	var f filterFlags
	var asJSON bool
	var watch time.Duration
	var e storeurl.Encryption
	cmd := &cobra.Command{
		Use:   "ls URL",
		Short: "List records, newest first",
		Long: `Lists the records that have not expired, newest first. LEFT is the rest of the
lease while a command is processing, and afterwards how long the record is kept.
With --json, every line is a record as a JSON object, without its response.

SQL stores find records by --tenant, --operation, --ref and --state unknown or
processing through an index. If a record can't be decoded but its state says that it
ended, only ls without --state lists it. With --watch, the table is printed repeatedly.`,
		Example: `  onlyonce records ls sqlite:onlyonce-data/onlyonce.db --operation "POST /api/v1/items" --limit 10
  onlyonce records ls sqlite:onlyonce-data/onlyonce.db --state unknown --older-than 15m --watch
  onlyonce records ls sqlite:onlyonce-data/onlyonce.db --limit 0 --json | jq -r 'select(.attempt > 1) | .key'`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := f.check(); err != nil {
				return err
			}
			if f.Limit < 0 {
				return cli.Usagef("--limit is %d: write 0 or more", f.Limit)
			}
			if watch != 0 {
				if asJSON {
					return cli.Usagef("--watch prints a table, and can't be combined with --json")
				}
				if mistake := cli.DurationMistake(watch, ""); mistake != "" {
					return cli.Usagef("--watch: %s", mistake)
				}
			}
			return storeurl.ReadDecrypted(cmd.Context(), args[0], e, func(store onlyonce.Lister) error {
				if watch != 0 {
					return watchTable(cmd, store, &f, watch)
				}
				if asJSON {
					return listJSON(cmd, list(cmd.Context(), store, f.filter()))
				}
				return listTable(cmd, store, f.filter())
			})
		},
	}
	f.addNames(cmd)
	f.addFlags(cmd)
	f.addRef(cmd)
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "largest `number` of records; 0 lists all")
	cmd.Flags().DurationVar(&watch, "watch", 0, "list again after every `interval` until the command is interrupted (default without a value: 2s)")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	storeflags.AddEncryption(cmd.Flags(), &e)
	return cmd
}

// list lists records, newest first. The state unknown includes commands whose lease
// has lapsed, because their outcome is unknown, too.
func list(ctx context.Context, store onlyonce.Lister, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	if f.State == onlyonce.StateUnknown {
		f.State, f.Unresolved = "", true
	}
	return store.List(ctx, f)
}

// states are the values of --state.
var states = cli.Choice{string(onlyonce.StateProcessing), string(onlyonce.StateCompleted), string(onlyonce.StateFailed), string(onlyonce.StateUnknown), string(onlyonce.StateRemembered)}

func listJSON(cmd *cobra.Command, records iter.Seq2[onlyonce.Record, error]) error {
	out := plain.NewJSONEncoder(cmd.OutOrStdout())
	for r, err := range records {
		if err != nil {
			return err
		}
		if err := out.Encode(newRecordJSON(r)); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// watchTable lists again after every interval until the command's context ends. On a
// terminal, a list takes the place of the one before.
func watchTable(cmd *cobra.Command, store onlyonce.Lister, f *filterFlags, every time.Duration) error {
	for {
		if cli.PrintsToTerminal(cmd.OutOrStdout()) {
			fmt.Fprint(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
		}
		fmt.Fprintln(cmd.OutOrStdout(), time.Now().Format(time.RFC3339))
		err := listTable(cmd, store, f.filter())
		if cmd.Context().Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-cmd.Context().Done():
			return nil
		}
	}
}

func listTable(cmd *cobra.Command, store onlyonce.Lister, f onlyonce.Filter) error {
	limit := f.Limit
	if limit > 0 {
		f.Limit++ // to know whether there are more
	}
	out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	writeHeading(out)
	listed := 0
	for r, err := range list(cmd.Context(), store, f) {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		if listed++; listed > limit && limit > 0 {
			break
		}
		writeRow(out, r)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if limit > 0 && listed > limit {
		fmt.Fprintln(cmd.ErrOrStderr(), "There are more: --limit 0 lists all.")
	}
	return nil
}

// writeHeading writes the names of the columns of writeRow.
func writeHeading(w io.Writer) {
	fmt.Fprintln(w, "ID\tSTATE\tAGE\tLEFT\tATTEMPT\tSTATUS\tTENANT\tOPERATION\tKEY\tREF")
}

func writeRow(w io.Writer, r onlyonce.Record) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n",
		r.ID.HexHash()[:shortID], stateOf(r), cli.Age(time.Since(r.CreatedAt)), leftOf(r), r.Attempt, statusOf(r),
		cli.Cell(r.ID.Tenant), cli.Cell(r.ID.Operation), cli.Cell(r.ID.Key), cli.Cell(r.Result.Ref))
}

func statusOf(r onlyonce.Record) string {
	if r.Result.Status == 0 {
		return "-"
	}
	return fmt.Sprint(r.Result.Status)
}
