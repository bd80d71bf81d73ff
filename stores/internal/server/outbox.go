package server

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// An outboxRunner makes a Runner an engine.Runner, for the statements of the outbox.
type outboxRunner struct{ Runner }

func (l outboxRunner) Exec(name string, args []driver.NamedValue) (int64, error) {
	return l.Change(name, engine.Values(args)...)
}

func (l outboxRunner) Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	if l.Tx != nil {
		return l.each(name, row, engine.Values(args)...)
	}
	return l.Runner.Query(name, row, engine.Values(args)...)
}

func (s *Store) OutboxIn(ctx context.Context, tx *sql.Tx) (engine.Runner, error) {
	l, err := joined{s, tx}.join(ctx)
	return outboxRunner{l}, err
}

func (s *Store) OutboxRead(ctx context.Context) engine.Runner { return outboxRunner{s.Runner(ctx)} }

// OutboxWrite runs f again if the database rolled it back to resolve a conflict. A relay
// that needs the queue to itself locks the one row of onlyonce_outbox_lock: if relays
// locked messages instead, two of them could lease messages of one key. The server ends the
// transaction of a relay that hangs or has disappeared, for which all others would wait.
func (s *Store) OutboxWrite(ctx context.Context, alone bool, f func(engine.Runner) error) error {
	first, statements := "outbox brief", s.dialect.Statements()
	if alone {
		first = "outbox alone"
	}
	run := func(l Runner) error {
		in := outboxRunner{l}
		if statements[first] != "" {
			locked := false
			err := in.Query(first, nil, func([]driver.Value) error { locked = true; return nil })
			if err != nil {
				return err
			}
			if !locked {
				return engine.ErrNoOutboxLock
			}
		}
		return f(in)
	}
	if statements["outbox limit"] != "" {
		return s.Runner(ctx).TransactBriefly(sql.LevelReadCommitted, "outbox limit", "outbox unlimited", run)
	}
	return s.Runner(ctx).Transact(sql.LevelReadCommitted, run)
}
