package sqlite

import (
	"context"
	"database/sql"
	_ "embed"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

//go:embed outbox.sql
var outboxFile string

func (s *Store) OutboxIn(ctx context.Context, tx *sql.Tx) (engine.Session, error) {
	return sqlSession{ctx: ctx, on: tx, text: s.text}, nil
}

func (s *Store) OutboxRead(ctx context.Context) engine.Session {
	return sqlSession{ctx: ctx, on: s.db, text: s.text}
}

// OutboxWrite has the queue to itself always: SQLite has one writer.
func (s *Store) OutboxWrite(ctx context.Context, _ bool, f func(engine.Session) error) error {
	if err := s.file.check(); err != nil {
		return err
	}
	return s.do(ctx, outboxOp(f))
}

// An outboxOp is a change of the outbox.
type outboxOp func(engine.Session) error

func (outboxOp) alone(engine.Session) (bool, error) { return false, nil }

func (o outboxOp) apply(s engine.Session, _ *clock) error { return o(s) }
