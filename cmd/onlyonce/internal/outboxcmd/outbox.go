// Package outboxcmd is the command "onlyonce outbox": it shows the unpublished
// messages in a store's outbox, and requeues or discards parked ones.
package outboxcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce outbox".
func Command() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "outbox",
		Short: "Show a store's unpublished messages, and requeue or discard parked ones",
		Long: `Reads the messages that a store's transactions have appended and that are not yet
published, whether the servers of the store are running or not.

A message that failed too often, or that can no longer be decoded, is parked with
its error until someone requeues or discards it. Until then, the later messages of
its ordering key wait.`,
		Example: `  onlyonce outbox ls sqlite:onlyonce-data/onlyonce.db
  onlyonce outbox requeue sqlite:onlyonce-data/onlyonce.db 17 --reason "ticket 4711: the broker accepts it now"
  onlyonce outbox audit sqlite:onlyonce-data/onlyonce.db`,
	}, outboxLsCommand(),
		parkedCommand("requeue", "Publish parked messages again, counting their attempts from zero", outbox.Auditor.RequeueAudited),
		parkedCommand("discard", "Delete parked messages without publishing them", outbox.Auditor.DiscardAudited),
		auditCommand())
}

func outboxLsCommand() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "ls URL",
		Short: "List parked messages, oldest first, and count the waiting ones",
		Long: `Lists the messages that are parked, oldest first. The number of waiting messages and
the age of the oldest are printed to standard error. With --json, every line is a
message as a JSON object.`,
		Example: `  onlyonce outbox ls sqlite:onlyonce-data/onlyonce.db
  onlyonce outbox ls sqlite:onlyonce-data/onlyonce.db --json | jq -r .error`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usagef("--limit is %d: write 1 or more", limit)
			}
			return storeurl.With(cmd.Context(), args[0], func(store *storeurl.Store) error {
				return listParked(cmd, store.Outbox(), limit, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	cmd.Flags().IntVar(&limit, "limit", 100, "largest `number` of messages")
	return cmd
}

// beforeAll is a sequence number below that of every message.
const beforeAll = math.MinInt64

func listParked(cmd *cobra.Command, queue outbox.Queue, limit int, asJSON bool) error {
	lag, err := queue.Lag(cmd.Context())
	if err != nil {
		return err
	}
	parked := parkedUpTo(cmd.Context(), queue, limit)
	if asJSON {
		err = parkedJSON(cmd, parked)
	} else {
		err = parkedTable(cmd, parked)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "parked: %d; waiting: %d, the oldest for %s\n", lag.Parked, lag.Waiting, cli.Age(lag.Oldest))
	return nil
}

// Parked messages are read in pages. The database may look at all of them for each page, so pages
// grow while their payloads are small.
const (
	parkedPage  = 20
	longestPage = 5000
	pageBytes   = 1 << 20 // of payloads, up to which the next page is larger
)

// parkedUpTo returns at most limit parked messages, or an error instead of the rest.
func parkedUpTo(ctx context.Context, queue outbox.Queue, limit int) iter.Seq2[outbox.Entry, error] {
	return func(yield func(outbox.Entry, error) bool) {
		after, page := int64(beforeAll), parkedPage
		for left := limit; left > 0; {
			asked := min(left, page)
			list, err := queue.Parked(ctx, after, asked)
			if err != nil {
				yield(outbox.Entry{}, err)
				return
			}
			size := 0
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
				size += len(e.Payload)
			}
			if len(list) < asked {
				return
			}
			left -= asked
			page = nextPage(page, size)
		}
	}
}

// nextPage returns how many messages to read after a page whose payloads have size bytes.
func nextPage(page, size int) int {
	fits := longestPage
	if size > 0 {
		fits = int(min(int64(page)*pageBytes/int64(size), longestPage))
	}
	return max(min(2*page, fits), parkedPage)
}

func parkedTable(cmd *cobra.Command, parked iter.Seq2[outbox.Entry, error]) error {
	out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "SEQ\tAGE\tATTEMPTS\tTENANT\tTOPIC\tKEY\tID\tERROR")
	for e, err := range parked {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", e.Seq, cli.Age(time.Since(e.CreatedAt)), e.Attempts,
			cli.Cell(e.Tenant), cli.Cell(e.Topic), cli.Cell(e.Key), cli.Cell(e.ID), cli.Cell(e.Error))
	}
	return written(out.Flush())
}

// written marks an error as an error of writing the output.
func written(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write: %w", err)
}

// A parkedMessage is a parked message in the form that --json prints.
type parkedMessage struct {
	Seq       int64             `json:"seq"`
	ID        string            `json:"id"`
	Topic     string            `json:"topic"`
	Key       string            `json:"key"`
	Tenant    string            `json:"tenant"`
	Headers   map[string]string `json:"headers"`
	CreatedAt time.Time         `json:"created_at"`
	Attempts  int               `json:"attempts"`
	Error     string            `json:"error"`
	Corrupt   bool              `json:"corrupt"`
	Payload   []byte            `json:"payload_base64"`
}

func parkedJSON(cmd *cobra.Command, parked iter.Seq2[outbox.Entry, error]) error {
	out := plain.NewJSONEncoder(cmd.OutOrStdout())
	for e, err := range parked {
		if err != nil {
			return err
		}
		if err := out.Encode(parkedMessage{e.Seq, e.ID, e.Topic, e.Key, e.Tenant, e.Headers, e.CreatedAt.UTC(), e.Attempts, e.Error, e.Corrupt, e.Payload}); err != nil {
			return written(err)
		}
	}
	return nil
}

// parkedCommand returns a command that requeues or discards parked messages.
func parkedCommand(verb, short string, decide func(outbox.Auditor, context.Context, outbox.Decision, ...int64) (int, error)) *cobra.Command {
	var all bool
	var decision cli.Decision
	cmd := &cobra.Command{
		Use:   fmt.Sprintf("%s URL SEQ... | %[1]s URL --all", verb),
		Short: short,
		Long: short + `. The audit trail records who decided, when and why,
in the same transaction: onlyonce outbox audit shows it.`,
		Example: fmt.Sprintf("  onlyonce outbox %s sqlite:onlyonce-data/onlyonce.db 17 18 --reason \"ticket 4711\"", verb),
		Args:    cli.SomeOrAll(&all, "no messages are named: write their SEQ after the URL, or --all; onlyonce outbox ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seqs, err := parseSeqs(args[1:])
			if err != nil {
				return err
			}
			if err := decision.Complete("ticket 4711: the broker accepts it now"); err != nil {
				return err
			}
			return storeurl.With(cmd.Context(), args[0], func(store *storeurl.Store) error {
				queue := store.Outbox()
				if all {
					if seqs, err = allParked(cmd.Context(), queue); err != nil {
						return err
					}
				}
				n, err := decide(queue, cmd.Context(), outbox.Decision(decision.Decision), seqs...)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%sed: %d\n", strings.TrimSuffix(verb, "e"), n)
				if n < len(seqs) {
					return errors.New("not all of them were parked: onlyonce outbox ls lists those that are")
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all parked messages")
	decision.AddFlags(cmd.Flags())
	return cmd
}

func parseSeqs(args []string) (seqs []int64, err error) {
	for _, text := range args {
		seq, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, cli.Usagef("%q is not a SEQ: onlyonce outbox ls lists them", text)
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

func allParked(ctx context.Context, queue outbox.Queue) (seqs []int64, err error) {
	for e, err := range parkedUpTo(ctx, queue, math.MaxInt) {
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, e.Seq)
	}
	return seqs, nil
}
