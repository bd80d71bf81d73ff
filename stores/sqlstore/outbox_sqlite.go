package sqlstore

import (
	"context"
	"database/sql"
	_ "embed"
)

//go:embed outbox_sqlite.sql
var sqliteOutboxFile string

func (s *sqlite) outboxIn(ctx context.Context, tx *sql.Tx) (session, error) {
	return sqlSession{ctx: ctx, on: tx, text: s.text}, nil
}

func (s *sqlite) outboxRead(ctx context.Context) session {
	return sqlSession{ctx: ctx, on: s.db, text: s.text}
}

// outboxWrite has the queue to itself always: SQLite has one writer.
func (s *sqlite) outboxWrite(ctx context.Context, _ bool, f func(session) error) error {
	if err := s.file.check(); err != nil {
		return err
	}
	return s.do(ctx, outboxOp(f))
}

// An outboxOp is a change of the outbox.
type outboxOp func(session) error

func (outboxOp) alone(session) (bool, error) { return false, nil }

func (o outboxOp) apply(s session, _ *clock) error { return o(s) }
