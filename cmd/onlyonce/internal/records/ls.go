package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

func lsCommand() *cobra.Command {
	var f filterFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls URL",
		Short: "List records, newest first",
		Long: `Lists the records that have not expired, newest first. LEFT is the rest of the
lease while a command is processing, and afterwards how long the record is kept.
With --json, every line is a record as a JSON object, without its response.`,
		Example: `  onlyonce records ls sqlite:onlyonce-data/onlyonce.db --operation "POST /api/v1/items" --limit 10
  onlyonce records ls sqlite:onlyonce-data/onlyonce.db --limit 0 --json | jq -r 'select(.attempt > 1) | .key'`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := f.check(); err != nil {
				return err
			}
			if f.Limit < 0 {
				return cli.Usagef("--limit is %d: write 0 or more", f.Limit)
			}
			return storeurl.WithRecords(cmd.Context(), args[0], func(store storeurl.Records) error {
				if asJSON {
					return listJSON(cmd, list(cmd.Context(), store, f.filter()))
				}
				return listTable(cmd, store, f.filter())
			})
		},
	}
	cmd.Flags().StringVar(&f.Tenant, "tenant", "", "only records of this `tenant`")
	cmd.Flags().StringVar(&f.Operation, "operation", "", "only records of this `operation`")
	cmd.Flags().StringVar(&f.Key, "key", "", "only records with this `key`")
	f.addFlags(cmd)
	f.addRef(cmd)
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "largest `number` of records; 0 lists all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	return cmd
}

// list lists records, newest first. The state unknown includes commands whose lease
// has lapsed, because their outcome is unknown, too.
func list(ctx context.Context, store onlyonce.Lister, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	if f.State != onlyonce.StateUnknown {
		return store.List(ctx, f)
	}
	running := f
	running.State, running.Limit = onlyonce.StateProcessing, 0
	lapsed := func(yield func(onlyonce.Record, error) bool) {
		for r, err := range store.List(ctx, running) {
			if (err != nil || r.LeaseLeft <= 0) && !yield(r, err) {
				return
			}
		}
	}
	return newestFirst(store.List(ctx, f), lapsed, f.Limit)
}

// newestFirst merges two lists into one of at most limit records; 0 means all.
func newestFirst(a, b iter.Seq2[onlyonce.Record, error], limit int) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		nextA, stopA := iter.Pull2(a)
		defer stopA()
		nextB, stopB := iter.Pull2(b)
		defer stopB()
		ra, errA, moreA := nextA()
		rb, errB, moreB := nextB()
		for n := 0; (moreA || moreB) && (limit == 0 || n < limit); n++ {
			if moreA && (!moreB || errA != nil || errB == nil && !ra.CreatedAt.Before(rb.CreatedAt)) {
				if !yield(ra, errA) {
					return
				}
				ra, errA, moreA = nextA()
				continue
			}
			if !yield(rb, errB) {
				return
			}
			rb, errB, moreB = nextB()
		}
	}
}

// states are the values of --state.
var states = cli.Choice{string(onlyonce.StateProcessing), string(onlyonce.StateCompleted), string(onlyonce.StateFailed), string(onlyonce.StateUnknown)}

func listJSON(cmd *cobra.Command, records iter.Seq2[onlyonce.Record, error]) error {
	out := json.NewEncoder(plain.JSONTo(cmd.OutOrStdout()))
	out.SetEscapeHTML(false)
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
		fullID(r.ID)[:shortID], stateOf(r), cli.Age(time.Since(r.CreatedAt)), leftOf(r), r.Attempt, statusOf(r),
		cli.Cell(r.ID.Tenant), cli.Cell(r.ID.Operation), cli.Cell(r.ID.Key), cli.Cell(r.Result.Ref))
}

func statusOf(r onlyonce.Record) string {
	if r.Result.Status == 0 {
		return "-"
	}
	return fmt.Sprint(r.Result.Status)
}
