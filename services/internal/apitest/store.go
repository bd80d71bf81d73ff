// Package apitest has helpers for the tests of the services: a database with a
// store in it, a store whose commands can be held, and a log that can be read.
package apitest

import (
	"context"
	"database/sql"
	"errors"
	"os"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// Open opens the SQLite database in dir, and the store in it; both are made if
// they are not there.
func Open(ctx context.Context, dir string) (*sql.DB, *sqlstore.Store, error) {
	return (&Database{"sqlite", "sqlite", sqliteDSN(dir)}).Open(ctx)
}

// Example opens a database and a store in a new directory, for an example. It panics if that
// fails. done closes and deletes them.
func Example() (dir string, db *sql.DB, store *sqlstore.Store, done func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	db, store, err = Open(context.Background(), dir)
	if err != nil {
		panic(err)
	}
	return dir, db, store, func() {
		if err := errors.Join(store.Close(), db.Close(), os.RemoveAll(dir)); err != nil {
			panic(err)
		}
	}
}

// A Held store blocks the functions of transactions until it is released.
type Held struct {
	*sqlstore.Store
	Running chan struct{} // gets a value when a command begins
	LetGo   chan struct{} // to be closed
}

// Hold returns a Held store over s.
func Hold(s *sqlstore.Store) *Held {
	return &Held{Store: s, Running: make(chan struct{}, 1), LetGo: make(chan struct{})}
}

// RunTx is the store's, but that fn is held first.
func (h *Held) RunTx(ctx context.Context, c onlyonce.Claim, fn Func) (onlyonce.Record, error) {
	return h.Store.RunTx(ctx, c, func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		h.Running <- struct{}{}
		<-h.LetGo
		return fn(ctx, tx, r)
	})
}

// A Func is a function that RunTx runs.
type Func = func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error)

// A Broken store fails every transaction.
type Broken struct {
	*sqlstore.Store
	Err error
}

// RunTx runs nothing.
func (b *Broken) RunTx(context.Context, onlyonce.Claim, Func) (onlyonce.Record, error) {
	return onlyonce.Record{}, b.Err
}
