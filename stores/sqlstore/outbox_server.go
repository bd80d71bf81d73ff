package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
)

//go:embed outbox_mysql.sql
var mysqlOutboxFile string

// An outboxSession runs outbox statements in a serverSession.
type outboxSession struct{ serverSession }

func (l outboxSession) exec(name string, args []driver.NamedValue) (int64, error) {
	return l.change(name, anys(args)...)
}

func (l outboxSession) query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	return l.serverSession.query(name, row, anys(args)...)
}

func (s *server) outboxIn(ctx context.Context, tx *sql.Tx) (session, error) {
	l, err := joinedServer{s, tx}.join(ctx)
	return outboxSession{l}, err
}

func (s *server) outboxRead(ctx context.Context) session { return outboxSession{s.line(ctx)} }

// outboxWrite runs f again when the database undid it to resolve a conflict. To
// have the queue alone takes the lock of a row: that of the messages would let
// two relays pass by each other, and have messages of one key both.
func (s *server) outboxWrite(ctx context.Context, alone bool, f func(session) error) error {
	for n := 1; ; n++ {
		err := s.outboxWriteOnce(ctx, alone, f)
		if err == nil || !errors.Is(err, errConflict) || n == maxConflicts || !pause(ctx, n) {
			return err
		}
	}
}

func (s *server) outboxWriteOnce(ctx context.Context, alone bool, f func(session) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return explain(s.dialect.classify(err), err)
	}
	in := outboxSession{serverSession{server: s, ctx: ctx, tx: tx}}
	first := "outbox brief"
	if alone {
		first = "outbox alone"
	}
	if s.dialect.statements()[first] != "" {
		locked := false
		err = in.query(first, nil, func([]driver.Value) error { locked = true; return nil })
		if !locked && err == nil {
			err = errNoOutboxLock
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
		return explain(s.dialect.classify(err), err)
	}
	return nil
}
