package main

import (
	"fmt"
	"io"

	"github.com/onlyonce-go/onlyonce"
	"github.com/spf13/cobra"
	sqlite3 "modernc.org/sqlite/lib"
)

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor URL",
		Short: "Check that a store's settings keep the promise",
		Long: `Looks for settings of a store that would break the promise and says what mends
each. serve refuses a store with findings, unless each is accepted by its name,
the word that it begins with, with --accept-risk.

Exit code 1 says that there are findings, or that the store can't be opened.`,
		Example: `  onlyonce doctor sqlite:onlyonce-data/onlyonce.db`,
		Args:    takes("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd.Context(), args[0], func(store *openStore) error {
				findings, err := store.Diagnose(cmd.Context())
				if err != nil {
					return err
				}
				return diagnosis(cmd.OutOrStdout(), findings)
			})
		},
	}
}

// diagnosis prints what was found; it is an error if that is anything.
func diagnosis(w io.Writer, findings []onlyonce.Finding) error {
	for _, f := range findings {
		fmt.Fprintln(w, f)
	}
	if len(findings) > 0 {
		return fmt.Errorf("findings: %d", len(findings))
	}
	fmt.Fprintf(w, "no findings\nSQLite %s\n%s\n", sqlite3.SQLITE_VERSION, classA)
	return nil
}

// classA is what SQLite promises with a write-ahead log and synchronous=FULL.
const classA = `guarantee class A: what was answered survives a crash of the process, of the
system and of the machine; there is one machine, and no failover`
