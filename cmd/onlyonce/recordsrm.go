package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/spf13/cobra"
)

func recordsRmCommand() *cobra.Command {
	var name recordName
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm URL ID | rm URL --key KEY",
		Short: "Delete a record, so that its command can run anew",
		Long: `Deletes one record: the next request with its key runs the command again, even
if it has taken effect before. The record is shown first, and deleted only if no
other attempt has begun since. While an attempt holds the command it is not
deleted at all.`,
		Example: `  onlyonce records rm sqlite:onlyonce-data/onlyonce.db 3f1c7a50
  onlyonce records rm sqlite:onlyonce-data/onlyonce.db --key order-17 --yes`,
		Args: name.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return name.with(cmd.Context(), args[0], func(store *openStore, r onlyonce.Record) error {
				if r.State == onlyonce.StateProcessing && r.LeaseLeft > 0 {
					return errHeld(r)
				}
				showFacts(cmd.OutOrStdout(), r)
				if !yes && !confirmed(cmd) {
					return errors.New("nothing was deleted: answer yes, or say --yes")
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
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// confirmed asks the person at the terminal.
func confirmed(cmd *cobra.Command) bool {
	fmt.Fprint(cmd.OutOrStdout(), "Delete this record, so that its command can run again? Type yes: ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	fmt.Fprintln(cmd.OutOrStdout())
	return strings.TrimSpace(answer) == "yes"
}

// A resolver is a store in which a person can decide about a record.
type resolver interface {
	Resolve(ctx context.Context, id onlyonce.ID, fence int64, s onlyonce.Settlement) error
}

// remove deletes r unless another attempt has begun since it was read.
func remove(ctx context.Context, store resolver, r onlyonce.Record) error {
	err := store.Resolve(ctx, r.ID, r.Fence, onlyonce.Settlement{})
	switch {
	case errors.Is(err, onlyonce.ErrInFlight):
		return errHeld(r)
	case errors.Is(err, onlyonce.ErrLost):
		return errors.New("nothing was deleted: another attempt began meanwhile; look at the record again")
	case errors.Is(err, onlyonce.ErrNotFound):
		return errors.New("nothing was deleted: the record is gone already")
	}
	return err
}

func errHeld(r onlyonce.Record) error {
	return fmt.Errorf("nothing was deleted: an attempt holds the command, for %s unless it renews: wait until it ends or its lease lapses", age(max(r.LeaseLeft, 0)))
}
