package sqlite

import (
	"context"
	"errors"
)

var errInside = errors.New("called from a function in RunTx or SettleTx of the same store, which holds the one write lock: use WithTx with its transaction")

type insideKey struct{ store *Store }

// enterContext marks the context of a function that runs in RunTx or SettleTx.
func (s *Store) enterContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideKey{s}, true)
}

// checkContext refuses what would wait for itself.
func (s *Store) checkContext(ctx context.Context) error {
	if ctx.Value(insideKey{s}) != nil {
		return errInside
	}
	return nil
}
