package pgxstore

import (
	"context"
	"iter"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

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
