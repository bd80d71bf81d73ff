package records

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/spf13/cobra"
)

// A selection names the records that a command changes: by their ids, by --key, or by what
// they have in common.
type selection struct {
	ids    []string
	name   recordName
	filter filterFlags
}

func (s *selection) addFlags(cmd *cobra.Command) {
	s.name.addFlags(cmd)
	s.filter.addFlags(cmd)
}

// selectionUse are the forms of the arguments, for the help.
func selectionUse(name string) string {
	return name + " URL ID... | " + name + " URL --key KEY | " + name + " URL --state STATE"
}

// args accepts URL and ids, or URL and flags.
func (s *selection) args(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usagef("missing argument: URL")
	}
	s.ids = nil
	filtered := s.filter.set() || s.name.key == "" && (s.name.operation != "" || s.name.tenant != "")
	switch named := len(args) > 1; {
	case s.name.key != "" && named:
		return cli.Usagef("unexpected argument %q after URL", args[1])
	case s.name.key != "" && filtered:
		return cli.Usagef("--key names one record: leave out the flags that select several")
	case named && filtered:
		return cli.Usagef("IDs and flags that select records cannot be combined: use one or the other")
	case s.name.key == "" && !named && !filtered:
		return cli.Usagef("no record is named: write IDs after the URL, pass --key, or select records with --state, --older-than, --tenant or --operation; onlyonce records ls lists the records")
	}
	for _, id := range args[1:] {
		id, err := parseID(id)
		if err != nil {
			return err
		}
		s.ids = append(s.ids, id)
	}
	return s.filter.check()
}

// find returns the records without their responses, and how many it left out because an
// attempt holds their commands. A record that is named is not left out: an attempt that
// holds its command is an error.
func (s *selection) find(ctx context.Context, store onlyonce.Lister, errHeld func(onlyonce.Record) error) (found []onlyonce.Record, held int, err error) {
	if s.name.key == "" && len(s.ids) == 0 {
		f := s.filter.filter()
		f.Tenant, f.Operation = s.name.tenant, s.name.operation
		for r, err := range list(ctx, store, f) {
			if err != nil {
				return nil, 0, err
			}
			if isHeld(r) {
				held++
				continue
			}
			found = append(found, withoutResponse(r))
		}
		return found, held, nil
	}
	names := []recordName{s.name}
	if len(s.ids) > 0 {
		names = nil
		for _, id := range s.ids {
			names = append(names, recordName{id: id})
		}
	}
	seen := make(map[onlyonce.ID]bool)
	for _, name := range names {
		r, err := name.find(ctx, store)
		if err != nil {
			return nil, 0, err
		}
		if isHeld(r) {
			return nil, 0, errHeld(r)
		}
		if !seen[r.ID] {
			seen[r.ID] = true
			found = append(found, r)
		}
	}
	return found, 0, nil
}

func isHeld(r onlyonce.Record) bool {
	return r.State == onlyonce.StateProcessing && r.LeaseLeft > 0
}

// withoutResponse returns the parts of a record that a command needs to change it: a
// selection may have millions.
func withoutResponse(r onlyonce.Record) onlyonce.Record {
	r.Result.Header, r.Result.Body, r.Steps = nil, nil, nil
	return r
}

// previewed is how many records of a selection are shown before it is changed.
const previewed = 20

// showSelection shows the records of a selection to the person who confirms the change.
func showSelection(w io.Writer, found []onlyonce.Record) {
	if len(found) == 1 {
		showFacts(w, found[0])
		return
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	writeHeading(out)
	for _, r := range found[:min(len(found), previewed)] {
		writeRow(out, r)
	}
	out.Flush()
	if more := len(found) - previewed; more > 0 {
		fmt.Fprintf(w, "… and %d more\n", more)
	}
}
