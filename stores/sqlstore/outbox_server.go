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

// A boxLine is a session on a line.
type boxLine struct{ line }

func (l boxLine) exec(name string, args []driver.NamedValue) (int64, error) {
	return l.change(name, anys(args)...)
}

func (l boxLine) query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	return l.line.query(name, row, anys(args)...)
}

func (s *server) boxIn(ctx context.Context, tx *sql.Tx) (session, error) {
	l, err := joinedServer{s, tx}.join(ctx)
	return boxLine{l}, err
}

func (s *server) boxRead(ctx context.Context) session { return boxLine{s.line(ctx)} }

// boxWrite runs f again when the database undid it to resolve a conflict. To
// have the queue alone takes the lock of a row: that of the messages would let
// two relays pass by each other, and have messages of one key both.
func (s *server) boxWrite(ctx context.Context, alone bool, f func(session) error) error {
	for n := 1; ; n++ {
		err := s.boxWriteOnce(ctx, alone, f)
		if err == nil || !errors.Is(err, errConflict) || n == maxConflicts || !pause(ctx, n) {
			return err
		}
	}
}

func (s *server) boxWriteOnce(ctx context.Context, alone bool, f func(session) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return explain(s.dialect.trouble(err), err)
	}
	in := boxLine{line{server: s, ctx: ctx, tx: tx}}
	first := "outbox brief"
	if alone {
		first = "outbox alone"
	}
	if s.dialect.statements()[first] != "" {
		err = in.query(first, nil, func([]driver.Value) error { return nil })
	}
	if err == nil {
		err = f(in)
	}
	if err != nil {
		_ = tx.Rollback() // the error that made it counts
		return err
	}
	if err := tx.Commit(); err != nil {
		return explain(s.dialect.trouble(err), err)
	}
	return nil
}
