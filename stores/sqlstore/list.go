package sqlstore

import (
	"context"
	"database/sql/driver"
	"fmt"
	"iter"
	"math"

	"github.com/onlyonce-go/onlyonce"
)

// listPage is how many records are read at a time. No transaction is open
// while the caller looks at one.
const listPage = 200

// List lists records, newest first.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		before, left := int64(math.MaxInt64), f.Limit
		if !f.After.CreatedAt.IsZero() {
			before = f.After.CreatedAt.UnixMicro()
		}
		for {
			page, err := s.page(ctx, f, before)
			if err != nil {
				yield(onlyonce.Record{}, fmt.Errorf("sqlstore: list: %w", err))
				return
			}
			for _, r := range page {
				before = r.CreatedAt.UnixMicro()
				if f.State != "" && f.State != r.State {
					continue
				}
				if !yield(r.Record, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if len(page) < listPage {
				return
			}
		}
	}
}

// page reads the records of f but for its state, which only a record that has
// been decoded has.
func (s *Store) page(ctx context.Context, f onlyonce.Filter, before int64) ([]stored, error) {
	var page []stored
	from := through{ctx: ctx, on: s.db, text: s.text}
	err := from.query("list", args(before, f.Tenant, f.Tenant, f.Operation, f.Operation, f.Key, f.Key, f.Ref, f.Ref, int64(listPage)),
		func(v []driver.Value) error {
			page = append(page, decode(v))
			return nil
		})
	return page, err
}
