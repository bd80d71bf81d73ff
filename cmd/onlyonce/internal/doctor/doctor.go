// Package doctor is the command "onlyonce doctor": it looks for settings of a store
// that would break the guarantees.
package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/internal/visible"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/spf13/cobra"
	sqlite3 "modernc.org/sqlite/lib"
)

// Command returns the command "onlyonce doctor".
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor URL",
		Short: "Check that no setting of a store breaks the guarantees",
		Long: `Looks for settings of a store that would break the guarantees. Each finding is a line
with its name, its consequence and its fix. serve and proxy reject a store with
findings unless each is accepted by name with --accept-risk. Some findings cannot be
accepted, because the store cannot work with them.

The exit code is 1 if there are findings, and 2 if the store could not be examined.`,
		Example: `  onlyonce doctor sqlite:onlyonce-data/onlyonce.db`,
		Args:    cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := storeurl.Parse(args[0])
			if err != nil {
				return err
			}
			findings, summary, err := diagnose(cmd.Context(), u)
			if err != nil {
				return cli.Inconclusive(err)
			}
			return diagnosis(cmd.OutOrStdout(), findings, summary)
		},
	}
}

// diagnose returns the findings about a store, including those because of which it
// cannot be opened.
func diagnose(ctx context.Context, u storeurl.URL) (findings []onlyonce.Finding, summary string, err error) {
	switch u.Engine {
	case storeurl.Redis:
		return diagnoseRedis(ctx, u)
	case storeurl.DynamoDB:
		return diagnoseDynamo(ctx, u)
	case storeurl.NATS:
		return diagnoseNATS(ctx, u)
	case storeurl.Etcd:
		return diagnoseEtcd(ctx, u)
	}
	db, err := u.OpenDB(ctx, false)
	if err != nil {
		findings, err = orReadOnly(err)
		return findings, "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if findings, err = examine(ctx, u, db); len(findings) == 0 && err == nil {
		summary, err = about(ctx, u, db)
	}
	return findings, summary, err
}

// examine returns the findings about a store, including those because of which
// opening it fails.
func examine(ctx context.Context, u storeurl.URL, db *sql.DB) (findings []onlyonce.Finding, err error) {
	if findings, err = examineSchema(ctx, u, db); len(findings) > 0 || err != nil {
		return findings, err
	}
	store, err := sqlstore.Open(ctx, db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		if findings = rejections(err); len(findings) > 0 {
			return findings, nil
		}
		return orReadOnly(fmt.Errorf("%v: %w", u, err))
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Diagnose(ctx)
}

// examineSchema returns a finding if the version of the tables is not the one that
// this program needs.
func examineSchema(ctx context.Context, u storeurl.URL, db *sql.DB) ([]onlyonce.Finding, error) {
	list, err := sqlstore.Migrations(u.Engine)
	if err != nil {
		return nil, err
	}
	have, err := sqlstore.SchemaVersion(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", u, err)
	}
	f := onlyonce.Finding{Name: "schema", Fix: "run onlyonce migrate with the same URL"}
	switch need := len(list); {
	case have == need:
		return nil, nil
	case have == 0:
		f.Problem = "the database does not have onlyonce's tables"
	case have < need:
		f.Problem = fmt.Sprintf("its version is %d, but this program needs %d", have, need)
	default:
		f.Problem, f.Fix = fmt.Sprintf("its version is %d, but this program supports only %d", have, need), "run a newer onlyonce"
	}
	return []onlyonce.Finding{f}, nil
}

// diagnosis prints the findings, or the summary of a store without findings. It
// returns an error if there are findings.
func diagnosis(w io.Writer, findings []onlyonce.Finding, summary string) error {
	for _, f := range findings {
		fmt.Fprintln(w, visible.Text(plain.Mask(f.String()), ""))
	}
	if len(findings) > 0 {
		return fmt.Errorf("findings: %d", len(findings))
	}
	fmt.Fprintf(w, "no findings\n%s\n", visible.Text(summary, "\n")) // it contains the server's own version text
	return nil
}

// about names the engine and its guarantees when there are no findings.
func about(ctx context.Context, u storeurl.URL, db *sql.DB) (string, error) {
	if u.Engine == storeurl.SQLite {
		return "SQLite " + sqlite3.SQLITE_VERSION + "\n" + classSQLite, nil
	}
	name := map[string]string{storeurl.Postgres: "PostgreSQL", storeurl.MySQL: "MySQL"}[u.Engine]
	var version string
	if err := db.QueryRowContext(ctx, serverVersionSQL[u.Engine]).Scan(&version); err != nil {
		return "", fmt.Errorf("%v: %w", u, err)
	}
	return name + " " + version + "\n" + classServer, nil
}

var serverVersionSQL = map[string]string{
	storeurl.Postgres: "SELECT current_setting('server_version')",
	storeurl.MySQL:    "SELECT version()",
}

// The guarantees of SQLite with a write-ahead log and synchronous=FULL, and of a
// server that flushes every commit.
const (
	classSQLite = `guarantee class A: responses that were sent survive a crash of the process, of
the system and of the machine; a single machine, no failover`
	classServer = `guarantee class A: responses that were sent survive a crash of the process and of
the server; a failover keeps what its standby had confirmed`
)
