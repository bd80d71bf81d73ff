package records

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/internal/visible"
	"github.com/spf13/cobra"
)

// previewSize is the length of a body that show prints at most, in bytes.
const previewSize = 4 << 10

func showCommand() *cobra.Command {
	var name recordName
	var asJSON, raw bool
	var e storeurl.Encryption
	cmd := &cobra.Command{
		Use:   "show URL ID | show URL --key KEY",
		Short: "Show one record and its stored response",
		Long: `Shows one record: its state, times and steps, the decisions of people about it, and
its stored response. Characters that a terminal would interpret are escaped, and a
long body is cut; --raw writes only the bytes of the body, unchanged.

Of a record that was deleted, --key, --operation and --tenant together show the
decisions.`,
		Example: `  onlyonce records show sqlite:onlyonce-data/onlyonce.db 3f1c7a50
  onlyonce records show sqlite:onlyonce-data/onlyonce.db --key order-17 --raw > body.json`,
		Args: name.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && raw {
				return cli.Usagef("--json and --raw cannot be combined")
			}
			out := cmd.OutOrStdout()
			return storeurl.ReadDecrypted(cmd.Context(), args[0], e, func(store onlyonce.Lister) error {
				r, err := name.find(cmd.Context(), store)
				if errors.Is(err, errNoRecord) {
					return errors.Join(err, showDeleted(cmd, store, name))
				}
				if err != nil {
					return err
				}
				entries, err := auditTrail(cmd.Context(), store, r.ID)
				if err != nil {
					return err
				}
				switch {
				case raw:
					_, err = out.Write(r.Result.Body)
				case asJSON:
					j := newRecordJSON(r).withResponse(r)
					j.Audit = newAuditJSON(entries)
					err = plain.NewJSONEncoder(out).Encode(j)
				default:
					err = show(out, r, entries)
				}
				if err != nil {
					return fmt.Errorf("write: %w", err)
				}
				return nil
			})
		},
	}
	name.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object with the whole body")
	cmd.Flags().BoolVar(&raw, "raw", false, "print only the body, unchanged")
	storeflags.AddEncryption(cmd.Flags(), &e)
	return cmd
}

// showDeleted writes the decisions about a command without a record to standard error. They
// are found only by its tenant, operation and key.
func showDeleted(cmd *cobra.Command, store onlyonce.Lister, name recordName) error {
	if name.key == "" {
		return nil
	}
	entries, err := auditTrail(cmd.Context(), store, onlyonce.ID{Tenant: name.tenant, Operation: name.operation, Key: name.key})
	return errors.Join(err, showAudit(cmd.ErrOrStderr(), entries))
}

// show writes a record for a person.
func show(w io.Writer, r onlyonce.Record, entries []onlyonce.AuditEntry) error {
	showFacts(w, r)
	if err := showAudit(w, entries); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Result.Header)) {
		for _, value := range r.Result.Header[name] {
			fmt.Fprintf(w, "%s: %s\n", visible.Text(name, ""), visible.Text(value, ""))
		}
	}
	if len(r.Result.Header) > 0 {
		fmt.Fprintln(w)
	}
	if storeurl.IsEncrypted(r) {
		return nil
	}
	_, err := io.WriteString(w, preview(r.Result.Body))
	return err
}

// showFacts writes everything about the record except its response.
func showFacts(w io.Writer, r onlyonce.Record) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%s\t%s\n", name, value)
		}
	}
	line("id", r.ID.HexHash())
	line("tenant", cli.Cell(r.ID.Tenant))
	line("operation", cli.Cell(r.ID.Operation))
	line("key", cli.Cell(r.ID.Key))
	line("state", stateOf(r))
	line("attempt", strconv.Itoa(r.Attempt))
	line("fence", strconv.FormatInt(r.Fence, 10))
	line("created", instant(r.CreatedAt))
	line("settled", instant(r.SettledAt))
	switch {
	case r.State != onlyonce.StateProcessing:
		line("stays", leftOf(r))
	case r.LeaseLeft <= 0:
		line("lease", "lapsed "+cli.Age(-r.LeaseLeft)+" ago: the process died, or could not reach the store")
	default:
		line("lease", leftOf(r)+" left")
	}
	line("fingerprint", hex.EncodeToString(r.Fingerprint))
	line("summary", visible.Text(r.Summary, ""))
	line("error", visible.Text(r.Error, ""))
	var steps []string
	for _, step := range slices.Sorted(maps.Keys(r.Steps)) {
		steps = append(steps, cli.Cell(step))
	}
	line("steps", strings.Join(steps, ", "))
	line("ref", visible.Text(r.Result.Ref, ""))
	line("traceparent", visible.Text(r.Result.Traceparent, ""))
	line("status", statusOf(r))
	line("body", bodyOf(r))
	out.Flush()
	fmt.Fprintln(w)
}

// bodyOf describes the body of the stored response.
func bodyOf(r onlyonce.Record) string {
	if storeurl.IsEncrypted(r) {
		return "encrypted: pass --encryption-keys-file to read it"
	}
	return fmt.Sprintf("%d bytes", len(r.Result.Body))
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format("2006-01-02T15:04:05.000Z"), cli.Age(time.Since(t)))
}

// preview returns the beginning of a body in a form that is safe for a terminal.
func preview(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	shown := body[:min(len(body), previewSize)]
	more := len(body) - len(shown)
	text := ""
	if whole := visible.WholeRunes(shown); utf8.Valid(whole) {
		text = visible.Text(string(whole), "\n\t")
	} else {
		text = hex.Dump(shown[:min(len(shown), 256)])
		more = len(body) - min(len(shown), 256)
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if more > 0 {
		text += fmt.Sprintf("… %d bytes more; --raw prints all\n", more)
	}
	return text
}
