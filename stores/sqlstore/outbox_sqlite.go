package sqlstore

import (
	"context"
	"database/sql"
	_ "embed"
)

//go:embed outbox_sqlite.sql
var sqliteOutboxFile string

func (s *sqlite) boxIn(ctx context.Context, tx *sql.Tx) (session, error) {
	return through{ctx: ctx, on: tx, text: s.text}, nil
}

func (s *sqlite) boxRead(ctx context.Context) session {
	return through{ctx: ctx, on: s.db, text: s.text}
}

// boxWrite has the queue to itself always: SQLite has one writer.
func (s *sqlite) boxWrite(ctx context.Context, _ bool, f func(session) error) error {
	if err := s.file.check(); err != nil {
		return err
	}
	return s.do(ctx, boxOp(f))
}

// A boxOp is a change of the outbox.
type boxOp func(session) error

func (boxOp) alone(session) (bool, error) { return false, nil }

func (o boxOp) apply(s session, _ *clock) error { return o(s) }
