package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// An outboxRunner makes a Runner an engine.Runner, for the statements of the outbox.
type outboxRunner struct{ Runner }

func (l outboxRunner) Exec(name string, args []driver.NamedValue) (int64, error) {
	return l.Change(name, engine.Values(args)...)
}

func (l outboxRunner) Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	return l.Runner.Query(name, row, engine.Values(args)...)
}

func (s *Store) OutboxIn(ctx context.Context, tx *sql.Tx) (engine.Runner, error) {
	l, err := joined{s, tx}.join(ctx)
	return outboxRunner{l}, err
}

func (s *Store) OutboxRead(ctx context.Context) engine.Runner { return outboxRunner{s.Runner(ctx)} }

// OutboxWrite runs f again if the database rolled it back to resolve a conflict. A relay
// that needs the queue to itself locks the one row of onlyonce_outbox_lock: if relays
// locked messages instead, two of them could lease messages of one key.
func (s *Store) OutboxWrite(ctx context.Context, alone bool, f func(engine.Runner) error) error {
	for n := 1; ; n++ {
		err := s.outboxWriteOnce(ctx, alone, f)
		if err == nil || !errors.Is(err, errConflict) || n == maxConflicts || !pause(ctx, n) {
			return err
		}
	}
}

func (s *Store) outboxWriteOnce(ctx context.Context, alone bool, f func(engine.Runner) error) error {
	tx, err := s.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return s.Explain(err)
	}
	in := outboxRunner{Runner{Store: s, Ctx: ctx, Tx: tx}}
	first := "outbox brief"
	if alone {
		first = "outbox alone"
	}
	if s.dialect.Statements()[first] != "" {
		locked := false
		err = in.Query(first, nil, func([]driver.Value) error { locked = true; return nil })
		if !locked && err == nil {
			err = engine.ErrNoOutboxLock
		}
	}
	if err == nil {
		err = f(in)
	}
	if err != nil {
		_ = tx.Rollback() // err is the error that counts
		return err
	}
	if err := tx.Commit(); err != nil {
		return s.Explain(err)
	}
	return nil
}
