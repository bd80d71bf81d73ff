package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// An outboxSession runs outbox statements in a session of the store.
type outboxSession struct{ Session }

func (l outboxSession) Exec(name string, args []driver.NamedValue) (int64, error) {
	return l.Change(name, engine.Values(args)...)
}

func (l outboxSession) Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	return l.Session.Query(name, row, engine.Values(args)...)
}

func (s *Store) OutboxIn(ctx context.Context, tx *sql.Tx) (engine.Session, error) {
	l, err := joined{s, tx}.join(ctx)
	return outboxSession{l}, err
}

func (s *Store) OutboxRead(ctx context.Context) engine.Session { return outboxSession{s.Session(ctx)} }

// OutboxWrite runs f again when the database undid it to resolve a conflict. To
// have the queue alone takes the lock of a row: that of the messages would let
// two relays pass by each other, and have messages of one key both.
func (s *Store) OutboxWrite(ctx context.Context, alone bool, f func(engine.Session) error) error {
	for n := 1; ; n++ {
		err := s.outboxWriteOnce(ctx, alone, f)
		if err == nil || !errors.Is(err, errConflict) || n == maxConflicts || !pause(ctx, n) {
			return err
		}
	}
}

func (s *Store) outboxWriteOnce(ctx context.Context, alone bool, f func(engine.Session) error) error {
	tx, err := s.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return s.Explain(err)
	}
	in := outboxSession{Session{Store: s, Ctx: ctx, Tx: tx}}
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
		_ = tx.Rollback() // the error that made it counts
		return err
	}
	if err := tx.Commit(); err != nil {
		return s.Explain(err)
	}
	return nil
}
