package pgxstore

import (
	"context"
	"iter"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
)

const (
	pageSize   = 200
	purgeBatch = 1000 // rows that are locked at a time
)

// Purge deletes at most limit records that have expired, a thousand at a time.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	purged := 0
	for purged < limit {
		n := min(limit-purged, purgeBatch)
		var rows, records int
		if err := s.pool.QueryRow(ctx, pgschema.Text["purge"], n).Scan(&rows, &records); err != nil {
			return purged, wrap("purge", err)
		}
		if purged += records; rows < n {
			break
		}
	}
	return purged, nil
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
	rows, err := s.pool.Query(ctx, pgschema.Text["list"], created, hash[:],
		pgschema.Escape(f.Tenant), pgschema.Escape(f.Operation), pgschema.Escape(f.Key), pgschema.Escape(f.Ref), pageSize)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(rows pgx.CollectableRow) (onlyonce.Record, error) {
		var r row
		err := rows.Scan(r.into()...)
		return r.stored().Record, err
	})
}
