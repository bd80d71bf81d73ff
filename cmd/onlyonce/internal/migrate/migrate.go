// Package migrate is the command "onlyonce migrate": it creates the tables of a
// store, or brings them up to date.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/services/items"
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/onlyonce-go/onlyonce/services/sandboxes"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce migrate".
func Command() *cobra.Command {
	var printOnly, forServe bool
	cmd := &cobra.Command{
		Use:   "migrate URL",
		Short: "Create the tables of a store, or bring them up to date",
		Long: `Creates the tables in the store's database, or brings them up to date, and prints
which of the two it did. It changes nothing if they are up to date. A SQLite file
that does not exist is created.

A store in Redis has no tables, only 256 small keys, whose loss shows that the
server has lost its records: until migrate creates them again, no new command runs.
A store in NATS has a stream with one such message; replicas in its URL is how many
servers keep the stream. A store in etcd has one such key. A store in DynamoDB has a
table with one such item. Run migrate when you set up the server or the table, not
with every deployment. It does not check the settings of the servers: onlyonce doctor
does, and so does every program that opens the store.

With --serve, it also creates the tables of the APIs of onlyonce serve: those of all
three in a SQLite file, and those of the orders on a server.

With --print, the SQL is written to standard output and no database is opened: use
it if goose, atlas or tern runs your migrations. Each migration records its own
version: run each in a transaction of its own, in order.`,
		Example: `  onlyonce migrate sqlite:onlyonce-data/onlyonce.db
  onlyonce migrate --serve postgres://owner@db.example.com/shop
  onlyonce migrate --print sqlite:any.db > 0001_onlyonce.sql`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := storeurl.Parse(args[0])
			if err != nil {
				return err
			}
			switch {
			case printOnly && forServe:
				return cli.Usagef("--print prints only the SQL of the store: leave out --serve, and let onlyonce migrate --serve create the tables of the APIs")
			case printOnly:
				return printMigrations(cmd, u)
			case forServe && u.RecordsOnly() != "":
				return cli.Usagef("onlyonce serve has no store in %s: leave out --serve, or name a SQL database", u.RecordsOnly())
			}
			return migrate(cmd, u, forServe)
		},
	}
	cmd.Flags().BoolVar(&forServe, "serve", false, "also create the tables of the APIs that onlyonce serve serves")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the SQL instead of running it")
	return cmd
}

func printMigrations(cmd *cobra.Command, u storeurl.URL) error {
	if name := u.RecordsOnly(); name != "" {
		return cli.Usagef("a store in %s has no SQL to print: run onlyonce migrate without --print", name)
	}
	list, err := sqlstore.Migrations(u.Engine)
	if err != nil {
		return err
	}
	for _, m := range list {
		fmt.Fprintf(cmd.OutOrStdout(), "-- %04d_%s\n\n%s\n", m.Version, m.Name, m.SQL)
	}
	return nil
}

func migrate(cmd *cobra.Command, u storeurl.URL, forServe bool) (err error) {
	switch u.Engine {
	case storeurl.Redis:
		return migrateRedis(cmd, u)
	case storeurl.NATS:
		return migrateNATS(cmd, u)
	case storeurl.Etcd:
		return migrateEtcd(cmd, u)
	case storeurl.DynamoDB:
		return migrateDynamo(cmd, u)
	}
	list, err := sqlstore.Migrations(u.Engine)
	if err != nil {
		return err
	}
	db, err := u.OpenDB(cmd.Context(), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	from, err := sqlstore.SchemaVersion(cmd.Context(), db)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	if err := sqlstore.Migrate(cmd.Context(), db); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), migrated(u.String(), int64(from), int64(len(list))))
	if !forServe {
		return nil
	}
	for _, api := range apis {
		if u.Engine != storeurl.SQLite && !api.onServers {
			continue
		}
		from, to, err := api.migrate(cmd.Context(), db)
		if err != nil {
			return fmt.Errorf("%v: tables of the %s API: %w", u, api.name, err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), migrated(fmt.Sprintf("%v: tables of the %s API", u, api.name), from, to))
	}
	return nil
}

// apis are the APIs of onlyonce serve.
var apis = []struct {
	name      string
	migrate   func(context.Context, *sql.DB) (from, to int64, err error)
	onServers bool // it may have its tables in a database on a server
}{
	{"items", items.Migrate, false},
	{"sandboxes", sandboxes.Migrate, false},
	{"orders", orders.Migrate, true},
}

// migrateRedis creates the missing keys of a store in Redis.
func migrateRedis(cmd *cobra.Command, u storeurl.URL) error {
	client, cfg, err := u.DialRedis(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	made, err := redisstore.Migrate(cmd.Context(), client, cfg)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	if made == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%v: up to date\n", u)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%v: created %d keys; if the store is not new, it has lost records, and their commands can run again\n", u, made)
	return nil
}

// migrateNATS creates the stream of a store in NATS, and the message in it that shows that
// the servers have not lost their records.
func migrateNATS(cmd *cobra.Command, u storeurl.URL) error {
	client, err := u.DialNATS(nil)
	if err != nil {
		return err
	}
	defer client.Close()
	made, err := natsstore.Migrate(cmd.Context(), client.JetStream, client.Config)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	if !made {
		fmt.Fprintf(cmd.OutOrStdout(), "%v: up to date\n", u)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%v: created the message that shows that the stream has its records; if the store is not new, it has lost records, and their commands can run again\n", u)
	return nil
}

// migrateEtcd creates the key of a store in etcd that shows that the members have not lost
// their records.
func migrateEtcd(cmd *cobra.Command, u storeurl.URL) error {
	client, cfg, err := u.DialEtcd(cmd.Context(), nil)
	if err != nil {
		return err
	}
	defer client.Close()
	made, err := etcdstore.Migrate(cmd.Context(), client, cfg)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	if !made {
		fmt.Fprintf(cmd.OutOrStdout(), "%v: up to date\n", u)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%v: created the key that shows that etcd has its records; if the store is not new, it has lost records, and their commands can run again\n", u)
	return nil
}

// migrateDynamo creates the table of a store in DynamoDB, and the item in it that shows that
// the table has not lost its records.
func migrateDynamo(cmd *cobra.Command, u storeurl.URL) error {
	client, cfg, err := u.DialDynamo(cmd.Context())
	if err != nil {
		return err
	}
	made, err := dynamostore.Migrate(cmd.Context(), client, cfg)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	if !made {
		fmt.Fprintf(cmd.OutOrStdout(), "%v: up to date\n", u)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%v: created the item that shows that the table has its records; if the store is not new, it has lost records, and their commands can run again\n", u)
	return nil
}

// migrated describes the migration of a schema from one version to another.
func migrated(what string, from, to int64) string {
	switch from {
	case 0:
		return fmt.Sprintf("%s: created, at version %d", what, to)
	case to:
		return fmt.Sprintf("%s: up to date, at version %d", what, to)
	}
	return fmt.Sprintf("%s: migrated from version %d to %d", what, from, to)
}
