package records

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/spf13/cobra"
)

// shortID is the number of hexadecimal digits of a record's ID that are shown, the
// same as in a log line.
const shortID = 16

// A recordName identifies the record of a command line.
type recordName struct{ id, tenant, operation, key string }

func (n *recordName) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.key, "key", "", "the record's `key`, instead of its id")
	cmd.Flags().StringVar(&n.operation, "operation", "", "the record's `operation`")
	cmd.Flags().StringVar(&n.tenant, "tenant", "", "the record's `tenant`")
}

// args accepts URL and, unless --key is set, ID.
func (n *recordName) args(cmd *cobra.Command, args []string) error {
	if n.key != "" {
		return cli.ExactArgs("URL")(cmd, args)
	}
	if len(args) == 1 {
		return cli.Usagef("no record is named: write its ID after the URL, or pass --key; onlyonce records ls lists the records")
	}
	if err := cli.ExactArgs("URL", "ID")(cmd, args); err != nil {
		return err
	}
	id, err := parseID(args[1])
	n.id = id
	return err
}

// parseID parses the beginning of an id.
func parseID(text string) (string, error) {
	id := strings.ToLower(text)
	if _, err := hex.DecodeString(id[:len(id)&^1]); err != nil || len(id) < 4 {
		return "", cli.Usagef("%q is not the beginning of an ID: write at least 4 hexadecimal digits, or pass --key", text)
	}
	return id, nil
}

// find returns the record that n identifies.
func (n *recordName) find(ctx context.Context, store onlyonce.Lister) (onlyonce.Record, error) {
	var found []onlyonce.Record
	for r, err := range store.List(ctx, onlyonce.Filter{Tenant: n.tenant, Operation: n.operation, Key: n.key, IDPrefix: n.id}) {
		if err != nil {
			return onlyonce.Record{}, err
		}
		if found = append(found, r); len(found) > 5 {
			break
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return onlyonce.Record{}, errNoRecord
	}
	var b strings.Builder
	for _, r := range found {
		fmt.Fprintf(&b, "\n  %s  tenant %s, operation %s, key %s", r.ID.HexHash()[:shortID], cli.Cell(r.ID.Tenant), cli.Cell(r.ID.Operation), cli.Cell(r.ID.Key))
	}
	return onlyonce.Record{}, fmt.Errorf("there is more than one such record: write more of the ID, or add --operation and --tenant:%s", &b)
}

var errNoRecord = errors.New("no such record: it may have expired; onlyonce records ls lists the existing ones")

// lapsedState is the state of a record whose lease has lapsed, in words.
const lapsedState = "processing (lapsed)"

// stateOf returns the record's state in words.
func stateOf(r onlyonce.Record) string {
	switch {
	case r.Corrupt:
		return string(r.State) + " (corrupt)"
	case r.State == onlyonce.StateProcessing && r.LeaseLeft <= 0:
		return lapsedState
	case r.Final:
		return "failed (final)"
	}
	return string(r.State)
}

// leftOf returns how long the lease of the record lasts or, if the record is settled,
// how long it is kept.
func leftOf(r onlyonce.Record) string {
	switch {
	case r.State == onlyonce.StateProcessing:
		return cli.Age(max(r.LeaseLeft, 0))
	case r.KeepLeft == 0:
		return "until resolved"
	}
	return cli.Age(r.KeepLeft)
}
