package outboxcmd

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/spf13/cobra"
)

func auditCommand() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "audit URL",
		Short: "Show who requeued or discarded messages, and why, newest first",
		Example: `  onlyonce outbox audit sqlite:onlyonce-data/onlyonce.db
  onlyonce outbox audit sqlite:onlyonce-data/onlyonce.db --json --limit 1000`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usagef("--limit is %d: write 1 or more", limit)
			}
			return storeurl.With(cmd.Context(), args[0], func(store *storeurl.Store) error {
				entries, err := store.Outbox().AuditTrail(cmd.Context(), 0, limit)
				switch {
				case err != nil:
					return err
				case asJSON:
					return auditJSON(cmd, entries)
				}
				return auditTable(cmd, entries)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	cmd.Flags().IntVar(&limit, "limit", 100, "largest `number` of decisions")
	return cmd
}

func auditTable(cmd *cobra.Command, entries []outbox.AuditEntry) error {
	out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "TIME\tBY\tACTION\tSEQ\tTENANT\tTOPIC\tKEY\tID\tERROR\tREASON")
	for _, e := range entries {
		m := &e.Message
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", e.At.UTC().Format(time.RFC3339), cli.Cell(e.Actor), cli.Cell(e.Action), m.Seq,
			cli.Cell(m.Tenant), cli.Cell(m.Topic), cli.Cell(m.Key), cli.Cell(m.ID), cli.Cell(m.Error), cli.Cell(e.Reason))
	}
	return written(out.Flush())
}

// A decisionJSON is a decision about a message in the form that --json prints.
type decisionJSON struct {
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
	Action   string    `json:"action"`
	Seq      int64     `json:"seq"` // of the message, as are the fields below
	ID       string    `json:"id"`
	Topic    string    `json:"topic"`
	Key      string    `json:"key"`
	Tenant   string    `json:"tenant"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"error"`
}

func auditJSON(cmd *cobra.Command, entries []outbox.AuditEntry) error {
	out := plain.NewJSONEncoder(cmd.OutOrStdout())
	for _, e := range entries {
		m := &e.Message
		if err := out.Encode(decisionJSON{e.At.UTC(), e.Actor, e.Reason, e.Action, m.Seq, m.ID, m.Topic, m.Key, m.Tenant, m.Attempts, m.Error}); err != nil {
			return written(err)
		}
	}
	return nil
}
