package records

import (
	"encoding/hex"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

// An exportJSON is everything about a record.
type exportJSON struct {
	recordJSON
	Owner       string            `json:"owner"`       // hexadecimal
	Fingerprint string            `json:"fingerprint"` // hexadecimal; empty: requests are not compared
	StepResults map[string][]byte `json:"step_results_base64"`
}

func exportCommand() *cobra.Command {
	var f filterFlags
	var e storeurl.Encryption
	cmd := &cobra.Command{
		Use:   "export URL",
		Short: "Write whole records as JSON, one per line, newest first",
		Long: `Writes every record, or those that the flags select, with its response, its steps and
its fingerprint, as one JSON object per line. A record that is created,
changed or deleted during the export may be missing from it. The export contains the
responses of all tenants: protect it.`,
		Example: `  onlyonce records export sqlite:onlyonce-data/onlyonce.db > records.jsonl
  onlyonce records export sqlite:onlyonce-data/onlyonce.db --state unknown | jq -r .error | sort | uniq -c`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return storeurl.ReadDecrypted(cmd.Context(), args[0], e, func(store onlyonce.Lister) error {
				out := plain.NewJSONEncoder(cmd.OutOrStdout())
				for r, err := range list(cmd.Context(), store, f.filter()) {
					if err != nil {
						return err
					}
					whole := exportJSON{newRecordJSON(r).withResponse(r), hex.EncodeToString([]byte(r.Owner)), hex.EncodeToString(r.Fingerprint), r.Steps}
					if err := out.Encode(whole); err != nil {
						return fmt.Errorf("write: %w", err)
					}
				}
				return nil
			})
		},
	}
	f.addNames(cmd)
	f.addFlags(cmd)
	f.addRef(cmd)
	storeflags.AddEncryption(cmd.Flags(), &e)
	return cmd
}
