package main

import (
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/spf13/cobra"
)

func migrateCommand() *cobra.Command {
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "migrate URL",
		Short: "Make the tables of a store, or bring them up to date",
		Long: `Makes the tables of the records in the store's database, or brings them up to
date; what is up to date is left alone. A SQLite file that is not there is made.

With --print the SQL is written to standard output and nothing is opened, for
those who run migrations with goose, atlas or tern. Each migration records its
own version: run each in a transaction of its own, in order.`,
		Example: `  onlyonce migrate sqlite:onlyonce-data/onlyonce.db
  onlyonce migrate --print sqlite:any.db > 0001_onlyonce.sql`,
		Args: takes("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := parseStoreURL(args[0])
			if err != nil {
				return err
			}
			if printOnly {
				return printMigrations(cmd, u)
			}
			return migrate(cmd, u)
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the SQL instead of running it")
	return cmd
}

func printMigrations(cmd *cobra.Command, u storeURL) error {
	list, err := sqlstore.Migrations(u.engine)
	if err != nil {
		return err
	}
	for _, m := range list {
		fmt.Fprintf(cmd.OutOrStdout(), "-- %04d_%s\n\n%s\n", m.Version, m.Name, m.SQL)
	}
	return nil
}

func migrate(cmd *cobra.Command, u storeURL) (err error) {
	db, err := u.openDB(cmd.Context(), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := sqlstore.Migrate(cmd.Context(), db); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%v is up to date\n", u)
	return nil
}
