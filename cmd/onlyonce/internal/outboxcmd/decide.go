package outboxcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/spf13/cobra"
)

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
					return errors.New("some of the messages were not parked: onlyonce outbox ls lists those that are")
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
			return nil, cli.Usagef("%q is not the number of a message: onlyonce outbox ls lists the numbers as SEQ", text)
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
