package adaptertest

import (
	"context"
	"maps"
	"sync"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A Store is a memstore with rows of its own that are committed together with its records: the
// smallest onlyonce.TxStore.
type Store struct {
	*memstore.Store

	Begin  error // the error with which every transaction fails to begin
	Commit error // the error with which every commit fails
	Twice  bool  // every function runs twice, as after a serialization failure

	mu   sync.Mutex
	rows Tx
}

// A Tx is a transaction of a Store: the rows that it writes.
type Tx map[string]string

// NewStore returns an empty Store.
func NewStore() *Store { return &Store{Store: memstore.New(memstore.Config{}), rows: Tx{}} }

// Row returns a row that was committed.
func (s *Store) Row(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[name]
}

func (s *Store) RunTx(ctx context.Context, c onlyonce.Claim, fn func(context.Context, Tx, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
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
	end, err := s.run(ctx, h, func(tx Tx) (onlyonce.Settlement, error) { return fn(ctx, tx, rec) })
	settled = err == nil || end.State != ""
	if err != nil || end.State == "" {
		return rec, err
	}
	return s.Lookup(ctx, c.ID)
}

func (s *Store) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, Tx) (onlyonce.Settlement, error)) error {
	_, err := s.run(ctx, h, func(tx Tx) (onlyonce.Settlement, error) { return fn(ctx, tx) })
	return err
}

// run runs fn, and keeps its rows if its settlement is accepted.
func (s *Store) run(ctx context.Context, h onlyonce.Hold, fn func(Tx) (onlyonce.Settlement, error)) (onlyonce.Settlement, error) {
	if s.Begin != nil {
		return onlyonce.Settlement{}, s.Begin
	}
	if s.Twice {
		_, _ = fn(Tx{})
	}
	tx := Tx{}
	end, failed := fn(tx)
	if failed != nil && end.State == "" {
		return end, failed
	}
	if failed == nil && s.Commit != nil {
		return onlyonce.Settlement{}, s.Commit
	}
	if err := s.Settle(ctx, h, end); err != nil {
		return onlyonce.Settlement{}, err
	}
	if failed == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.rows, tx)
	}
	return end, failed
}
