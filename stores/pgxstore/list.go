package pgxstore

import (
	"bytes"
	"context"
	"iter"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

const pageSize = 200

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
	return func(yield func(onlyonce.Record, error) bool) {
		created, hash, left := int64(math.MaxInt64), [32]byte(bytes.Repeat([]byte{0xff}, 32)), f.Limit
		if at := f.After; !at.CreatedAt.IsZero() {
			created, hash = record.Place(at.CreatedAt), at.ID.Hash()
		}
		for {
			page, err := s.page(ctx, f, created, hash)
			if err != nil {
				yield(onlyonce.Record{}, wrap("list", err))
				return
			}
			for _, r := range page {
				if f.State != "" && r.State != f.State {
					continue
				}
				if !yield(r.Record, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			last := &page[len(page)-1]
			created, hash = last.At, last.ID.Hash()
		}
	}
}

// page returns the records that come after a place in the list.
func (s *Store) page(ctx context.Context, f onlyonce.Filter, created int64, hash [32]byte) ([]stored, error) {
	text, args := postgres.List(f, created, hash[:], pageSize)
	rows, err := s.pool.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(rows pgx.CollectableRow) (stored, error) {
		var r row
		err := rows.Scan(r.into()...)
		return *r.stored(), err
	})
}
