package onlyonce_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A ledger is a store with rows of its own that change together with its
// records: the smallest TxStore.
type ledger struct {
	*faultyStore
	mu      sync.Mutex
	running map[onlyonce.ID]bool
	rows    map[string]int
}

// An entry is a transaction of a ledger.
type entry map[string]int

func newLedger() *ledger {
	return &ledger{faultyStore: newStore(), running: map[onlyonce.ID]bool{}, rows: map[string]int{}}
}

func (l *ledger) commit(tx entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.rows, tx)
}

func (l *ledger) row(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows[name]
}

func (l *ledger) RunTx(ctx context.Context, c onlyonce.Claim, fn func(context.Context, entry, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	l.mu.Lock()
	if l.running[c.ID] {
		l.mu.Unlock()
		return onlyonce.Record{ID: c.ID, State: onlyonce.StateProcessing, LeaseLeft: time.Second}, nil
	}
	l.running[c.ID] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.running, c.ID)
	}()
	rec, err := l.Store.Claim(ctx, c)
	if err != nil || rec.Owner != c.Owner {
		return rec, err
	}
	ctx = context.WithoutCancel(ctx)
	h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: rec.Fence}
	ended := false
	defer func() {
		if !ended {
			_ = l.Store.Settle(ctx, h, onlyonce.Settlement{})
		}
	}()
	tx := entry{}
	s, err := fn(ctx, tx, rec)
	ended = true
	if settled := l.settleWith(ctx, h, s, err, tx); settled != nil {
		_ = l.Store.Settle(ctx, h, onlyonce.Settlement{}) // leaves nothing, unless it was committed
		return rec, joined(err, settled)
	}
	if s.State != "" {
		rec.State, rec.Result = s.State, s.Result
	}
	return rec, err
}

func (l *ledger) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, entry) (onlyonce.Settlement, error)) error {
	tx := entry{}
	s, err := fn(ctx, tx)
	if err != nil && s.State == "" {
		return err
	}
	if settled := l.settleWith(ctx, h, s, err, tx); settled != nil {
		return joined(err, settled)
	}
	return err
}

// joined returns the error of a function, if there is one, together with the store's.
func joined(own, err error) error {
	if own == nil {
		return err
	}
	return errors.Join(own, err)
}

// settleWith settles an attempt with its rows, unless its function failed.
func (l *ledger) settleWith(ctx context.Context, h onlyonce.Hold, s onlyonce.Settlement, failed error, tx entry) error {
	return l.call(&l.settle, func() error {
		err := l.Store.Settle(ctx, h, s)
		if err == nil && failed == nil {
			l.commit(tx)
		}
		return err
	})
}
