package httponce_test

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A shop is a store with rows of its own that change together with its records:
// the smallest onlyonce.TxStore.
type shop struct {
	*memstore.Store
	mu     sync.Mutex
	rows   map[string]string
	begin  error // the error with which every transaction fails to begin
	commit error // the error with which every commit fails
	twice  bool  // every function runs twice, as after a serialization failure
}

// An order is a transaction of a shop: the rows it writes.
type order map[string]string

func newShop() *shop {
	return &shop{Store: memstore.New(memstore.Config{}), rows: map[string]string{}}
}

func (s *shop) row(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[name]
}

func (s *shop) RunTx(ctx context.Context, c onlyonce.Claim, fn func(context.Context, order, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	rec, err := s.Claim(ctx, c)
	if err != nil || rec.Owner != c.Owner {
		return rec, err
	}
	h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: rec.Fence}
	settled := false
	defer func() {
		if !settled {
			_ = s.Settle(ctx, h, onlyonce.Settlement{})
		}
	}()
	st, err := s.run(ctx, h, func(tx order) (onlyonce.Settlement, error) { return fn(ctx, tx, rec) })
	settled = err == nil || st.State != ""
	if err != nil || st.State == "" {
		return rec, err
	}
	return s.Lookup(ctx, c.ID)
}

func (s *shop) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, order) (onlyonce.Settlement, error)) error {
	_, err := s.run(ctx, h, func(tx order) (onlyonce.Settlement, error) { return fn(ctx, tx) })
	return err
}

// run runs fn, and keeps its rows if its settlement is taken.
func (s *shop) run(ctx context.Context, h onlyonce.Hold, fn func(order) (onlyonce.Settlement, error)) (onlyonce.Settlement, error) {
	if s.begin != nil {
		return onlyonce.Settlement{}, s.begin
	}
	if s.twice {
		_, _ = fn(order{})
	}
	tx := order{}
	st, failed := fn(tx)
	if failed != nil && st.State == "" {
		return st, failed
	}
	if failed == nil && s.commit != nil {
		return onlyonce.Settlement{}, s.commit
	}
	if err := s.Settle(ctx, h, st); err != nil {
		return onlyonce.Settlement{}, err
	}
	if failed == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.rows, tx)
	}
	return st, failed
}

var errBroken = errors.New("connection lost")
