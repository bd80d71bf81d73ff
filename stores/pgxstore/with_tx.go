package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// WithTx returns the store inside a transaction that the caller opened: its
// changes take effect when the caller commits, and are undone by a rollback.
// Until then, a claim makes other callers that claim the same command wait. If
// the isolation level hides a record that was created after the transaction
// began, or after a deadlock or a serialization failure, the error says to run
// the transaction again.
func (s *Store) WithTx(tx pgx.Tx) onlyonce.Store { return &inTx{s, tx} }

type inTx struct {
	store *Store
	tx    pgx.Tx
}

var _ onlyonce.CallersTx = (*inTx)(nil)

// InCallersTx tells a Guard that the store is in a transaction of the caller's.
func (*inTx) InCallersTx() bool { return true }

// errRunAgain is the error of a transaction that the database cannot continue, and that
// may be run again from its beginning.
var errRunAgain = errors.New("the transaction can't go on: roll it back and run it again from its beginning")

func (t *inTx) write(ctx context.Context, st *statement) error {
	if err := t.store.maintenance.Check(); err != nil {
		return err
	}
	st.inTx = true
	return t.explain(t.store.send(ctx, t.tx, "", []*statement{st}, ""))
}

func (t *inTx) look(ctx context.Context, k *record.Key) (*stored, error) {
	if err := t.store.maintenance.Check(); err != nil {
		return nil, err
	}
	r, err := t.store.lookOn(ctx, t.tx, k)
	return r, t.explain(err)
}

// flushed does not wait: the transaction's own commit comes later.
func (t *inTx) flushed(context.Context, *record.Key, *stored) (again bool, err error) {
	return false, nil
}

func (t *inTx) explain(err error) error {
	if isRetryable(err) || postgres.Classify(err) == server.ClassAborted {
		return fmt.Errorf("%w: %w", errRunAgain, err)
	}
	return err
}

func (t *inTx) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, wrap("claim in a transaction", err)
	}
	k := record.KeyOf(c.ID)
	r, _, err := claimRecord(ctx, t, &k, &c, false)
	if errors.Is(err, optimistic.ErrContended) { // the row that is in the way is not in this transaction's snapshot
		err = errRunAgain
	}
	return r, wrap("claim in a transaction", err)
}

func (t *inTx) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return wrap("renew in a transaction", renew(ctx, t, &h, lease, steps))
}

func (t *inTx) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("settle in a transaction", err)
	}
	return wrap("settle in a transaction", settle(ctx, t, &h, &st))
}

func (t *inTx) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	r, err := lookup(ctx, t, id)
	return r, wrap("lookup in a transaction", err)
}
