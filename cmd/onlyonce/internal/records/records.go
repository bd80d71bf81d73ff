// Package records is the command "onlyonce records": it reads, imports, resolves and deletes the
// records of a store.
package records

import (
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce records".
func Command() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "records",
		Short: "List, count, show, export, import, resolve and delete the records of a store",
		Long: `Reads, resolves and deletes the records of commands, whether the servers of the store are
running or not.

A record is named by its id or a unique prefix of it (log lines contain one as
record_id), or by --key, with --operation and --tenant if several records
have the same key.

ls, show, stats and export only read: for a store in a SQL database, a role that may
only SELECT, or a SQLite file that can only be read, is enough.

The contents of records in a store that cryptstore or onlyonce proxy
--encryption-keys-file encrypts are shown, and can be resolved, with the same flag.

STATUS is the HTTP status of the stored response. It is - if the command was not an
HTTP request, such as a call of Do, or has no response yet.`,
		Example: `  onlyonce records ls sqlite:onlyonce-data/onlyonce.db --state unknown
  onlyonce records show sqlite:onlyonce-data/onlyonce.db 3f1c7a50
  onlyonce records resolve sqlite:onlyonce-data/onlyonce.db 3f1c7a50 --rerun --reason "ticket 4711: not charged"
  onlyonce records rm sqlite:onlyonce-data/onlyonce.db --key order-17 --reason "ticket 4711: a test"`,
	}, lsCommand(), showCommand(), statsCommand(), exportCommand(), importCommand(), resolveCommand(), rmCommand(), purgeCommand(), rekeyCommand())
}
