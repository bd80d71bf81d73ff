package pgxstore

import (
	"context"
	"iter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// Purge deletes at most limit expired records, a thousand at a time.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	n, err := s.maintenance.Purge(ctx, limit)
	return n, wrap("purge", err)
}

// Unresolved counts the records whose outcome is unknown: those in the unknown
// state, those whose lease has lapsed, and those in a state that no store writes.
// It also returns for how long the oldest of them has been unresolved. It uses an
// index of the unresolved and running records.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	n, oldest, err = s.maintenance.Unresolved(ctx)
	return n, oldest, wrap("count what is unresolved", err)
}

// List lists records, newest first. A record that changes meanwhile may be
// listed in its old or its new state.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return record.Walk(f, func(p *record.Page) error { return wrap("list", s.page(ctx, f, p)) })
}

// page reads a page of the records of f but for its state.
func (s *Store) page(ctx context.Context, f onlyonce.Filter, p *record.Page) error {
	text, args := postgres.List(f, p)
	rows, err := s.pool.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(r.into()...); err != nil {
			return err
		}
		if p.Add(*r.stored()) != nil {
			return nil
		}
	}
	return rows.Err()
}
