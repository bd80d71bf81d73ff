package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

//go:embed migrations
var migrationFiles embed.FS

// Migrations are the versions of the schema.
var Migrations = engine.ReadMigrations(migrationFiles)

// SchemaVersion returns the version of the schema, and 0 if there is none.
func SchemaVersion(ctx context.Context, on engine.RowQuerier) (int, error) {
	return engine.SchemaVersion(ctx, on, Text)
}

// These are versions of the schema.
const (
	withOutbox      = 2 // the first that has the table of the outbox
	lastOutboxIndex = 9 // the last that changes an index of that table
)

// taken are the errors of a relation, a type and a function whose name is in use.
var taken = []string{"42P07", "42710", "42723"}

// mostMigrations is how often a migration begins, so that transactions which use the tables in every order
// at any time cannot keep it, and it them, for ever: each deadlock stops both for deadlock_timeout.
const mostMigrations = 10

// Migrate runs the missing migrations in one transaction while no other process does. It begins again, after a
// pause, if the server has ended that transaction to resolve a deadlock with another one.
func Migrate(ctx context.Context, db *sql.DB) error {
	for n := 1; ; n++ {
		began := time.Now()
		err := migrate(ctx, db)
		switch {
		case Code(err) != "40P01" || ctx.Err() != nil:
			return err
		case n == mostMigrations:
			return fmt.Errorf("%d times, the migration was in a deadlock with transactions that use the tables: end them, and migrate again: %w", n, err)
		case !transact.Pause(ctx, transact.AfterRun(n, time.Since(began))):
			return err
		}
	}
}

func migrate(ctx context.Context, db *sql.DB) (err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if _, err := tx.ExecContext(ctx, Text["migrate alone"]); err != nil {
		return err
	}
	have, err := SchemaVersion(ctx, tx)
	if err != nil {
		return err
	}
	if have > len(Migrations) {
		return engine.CheckVersion(have, len(Migrations))
	}
	for _, table := range []struct {
		lock        string
		since, last int // versions
	}{
		{"lock records", 1, len(Migrations)},
		{"lock outbox", withOutbox, lastOutboxIndex},
	} {
		if have < table.since || have >= table.last {
			continue
		}
		if _, err := tx.ExecContext(ctx, Text[table.lock]); err != nil {
			return err
		}
	}
	for _, m := range Migrations[have:] {
		_, err := tx.ExecContext(ctx, m.SQL)
		if slices.Contains(taken, Code(err)) {
			err = engine.NameTaken(err)
		}
		if err != nil {
			return fmt.Errorf("version %d: %w", m.Version, err)
		}
	}
	return tx.Commit()
}
