package pgxstore

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
)

const pageSize = 200

// Purge deletes at most limit records that have expired, a thousand at a time.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	n, err := s.plain.Purge(ctx, limit)
	return n, wrap("purge", err)
}

// Unresolved counts the records whose outcome nobody knows: unknown ones, and
// those whose lease has lapsed. It also returns for how long that has been so of
// the oldest. It goes by an index of what is unresolved or running.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	n, oldest, err = s.plain.Unresolved(ctx)
	return n, oldest, wrap("count what is unresolved", err)
}

// List lists records, newest first. What changes meanwhile may be in it as it
// was or as it is.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		at, left := f.After, f.Limit
		for {
			page, err := s.page(ctx, f, at)
			if err != nil {
				yield(onlyonce.Record{}, wrap("list", err))
				return
			}
			for _, r := range page {
				if f.State != "" && r.State != f.State {
					continue
				}
				if !yield(r, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			at = page[len(page)-1]
		}
	}
}

// page returns the records that come after the one at.
func (s *Store) page(ctx context.Context, f onlyonce.Filter, at onlyonce.Record) ([]onlyonce.Record, error) {
	created, hash := int64(math.MaxInt64), [32]byte{}
	if !at.CreatedAt.IsZero() {
		created, hash = at.CreatedAt.UnixMicro(), at.ID.Hash()
	}
	text, args := pgschema.List(f, created, hash[:], pageSize)
	rows, err := s.pool.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(rows pgx.CollectableRow) (onlyonce.Record, error) {
		var r row
		err := rows.Scan(r.into()...)
		return r.stored().Record, err
	})
}
