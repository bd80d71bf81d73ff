package records

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

func statsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stats URL",
		Short: "Count the records of each tenant, operation and state",
		Long: `Counts the records that have not expired, for each tenant, operation and state, with
the age of the oldest. It reads all records of the store once. With --json, every line
is a JSON object.`,
		Example: `  onlyonce records stats sqlite:onlyonce-data/onlyonce.db
  onlyonce records stats sqlite:onlyonce-data/onlyonce.db --json | jq -s 'group_by(.tenant) | map({(.[0].tenant): map(.count) | add}) | add'`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return storeurl.WithReader(cmd.Context(), args[0], func(store onlyonce.Lister) error {
				all, err := countRecords(cmd.Context(), store)
				if err != nil {
					return err
				}
				if asJSON {
					return statsJSON(cmd, all)
				}
				return statsTable(cmd, all)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	return cmd
}

// countRecords returns one count for each tenant, operation and state, in this order. A store
// that can't count lists its records.
func countRecords(ctx context.Context, store onlyonce.Lister) ([]onlyonce.RecordCount, error) {
	all := make(map[onlyonce.RecordCount]onlyonce.RecordCount)
	add := func(s onlyonce.RecordCount) {
		of := onlyonce.RecordCount{Tenant: s.Tenant, Operation: s.Operation, State: s.State, Lapsed: s.Lapsed}
		s.Count += all[of].Count
		s.Oldest = max(s.Oldest, all[of].Oldest)
		all[of] = s
	}
	if counter, ok := store.(onlyonce.Counter); ok {
		counted, err := counter.CountRecords(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range counted {
			add(s)
		}
	} else {
		for r, err := range store.List(ctx, onlyonce.Filter{}) {
			if err != nil {
				return nil, err
			}
			add(onlyonce.RecordCount{
				Tenant: r.ID.Tenant, Operation: r.ID.Operation, State: r.State, Lapsed: r.State == onlyonce.StateProcessing && r.LeaseLeft <= 0,
				Count: 1, Oldest: time.Since(r.CreatedAt),
			})
		}
	}
	sorted := make([]onlyonce.RecordCount, 0, len(all))
	for _, s := range all {
		sorted = append(sorted, s)
	}
	slices.SortFunc(sorted, func(a, b onlyonce.RecordCount) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Operation, b.Operation), cmp.Compare(stateOfCount(a), stateOfCount(b)))
	})
	return sorted, nil
}

func stateOfCount(s onlyonce.RecordCount) string {
	if s.Lapsed {
		return lapsedState
	}
	return string(s.State)
}

func statsTable(cmd *cobra.Command, all []onlyonce.RecordCount) error {
	out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "TENANT\tOPERATION\tSTATE\tCOUNT\tOLDEST")
	for _, s := range all {
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\n", cli.Cell(s.Tenant), cli.Cell(s.Operation), stateOfCount(s), s.Count, cli.Age(s.Oldest))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// A countJSON is a count in the form that --json prints.
type countJSON struct {
	Tenant    string         `json:"tenant"`
	Operation string         `json:"operation"`
	State     onlyonce.State `json:"state"`
	Lapsed    bool           `json:"lapsed"`
	Count     int            `json:"count"`
	Oldest    float64        `json:"oldest_seconds"`
}

func statsJSON(cmd *cobra.Command, all []onlyonce.RecordCount) error {
	out := plain.NewJSONEncoder(cmd.OutOrStdout())
	for _, s := range all {
		if err := out.Encode(countJSON{s.Tenant, s.Operation, s.State, s.Lapsed, s.Count, s.Oldest.Seconds()}); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}
