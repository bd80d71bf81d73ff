package outboxcmd

import (
	"context"
	"fmt"
	"iter"
	"math"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/spf13/cobra"
)

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
