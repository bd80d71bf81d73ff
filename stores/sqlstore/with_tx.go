package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// The operations that errors of RunTx and SettleTx name.
const (
	runningTx  = "sqlstore: run in a transaction"
	settlingTx = "sqlstore: settle in a transaction"
)

// RunTx claims, runs and settles in one transaction.
//
// On SQLite, waiting functions share a transaction, each in its own savepoint.
// While one runs, no other caller writes to the database. On PostgreSQL and
// MySQL, each function has its own transaction, at READ COMMITTED whatever the
// pool's level is, so fn must lock the rows that it reads in order to change
// them. fn runs again in a new transaction, up to twenty times in all, when the
// database ended its transaction to resolve a deadlock or a conflict, or when
// another attempt settled the command first.
func (s *Store) RunTx(ctx context.Context, c onlyonce.Claim, fn func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, fmt.Errorf("%s: %w", runningTx, err)
	}
	return s.engine.RunTx(ctx, runningTx, c, fn)
}

// SettleTx runs fn and settles an existing claim in one transaction, which is
// like that of RunTx.
func (s *Store) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error)) error {
	return s.engine.SettleTx(ctx, settlingTx, h, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		return fn(ctx, tx)
	})
}

// WithTx returns the store inside a transaction that the caller opened: its
// changes take effect when the caller commits, and are undone by a rollback.
// When one of its methods returns an error, roll the transaction back.
//
// On SQLite, a transaction that reads before it uses the store should begin
// with the write lock (BEGIN IMMEDIATE), because SQLite may deny it the lock
// later. On PostgreSQL and MySQL, other callers that claim the same command
// wait for the transaction's end.
func (s *Store) WithTx(tx *sql.Tx) onlyonce.Store { return inTx{s.engine.Joined(tx)} }

type inTx struct{ store onlyonce.Store }

var _ onlyonce.CallersTx = inTx{}

// InCallersTx tells a Guard that the store is in a transaction of the caller's.
func (inTx) InCallersTx() bool { return true }

func (t inTx) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: claim in a transaction: %w", err)
	}
	r, err := t.store.Claim(ctx, c)
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: claim in a transaction: %w", err)
	}
	return r, nil
}

func (t inTx) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := t.store.Renew(ctx, h, lease, steps); err != nil {
		return fmt.Errorf("sqlstore: renew in a transaction: %w", err)
	}
	return nil
}

func (t inTx) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	err := st.Check()
	if err == nil {
		err = t.store.Settle(ctx, h, st)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", settlingTx, err)
	}
	return nil
}

func (t inTx) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	r, err := t.store.Lookup(ctx, id)
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: lookup in a transaction: %w", err)
	}
	return r, nil
}
