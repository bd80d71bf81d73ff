package migrating_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A chargeFunc charges an order, whose number is the key for the bank, too.
type chargeFunc func(ctx context.Context, order string) (receipt string, err error)

func underLock(locks *redsync.Redsync, db *sql.DB, charge chargeFunc) chargeFunc {
	return func(ctx context.Context, order string) (receipt string, err error) {
		lock := locks.NewMutex("charge:"+order, redsync.WithExpiry(8*time.Second))
		if err := lock.LockContext(ctx); err != nil {
			return "", err
		}
		defer func() { _, _ = lock.UnlockContext(context.WithoutCancel(ctx)) }()
		err = db.QueryRowContext(ctx, "SELECT receipt FROM charges WHERE order_id = ?", order).Scan(&receipt)
		if !errors.Is(err, sql.ErrNoRows) {
			return receipt, err // it was charged before
		}
		if receipt, err = charge(ctx, order); err != nil {
			return "", err
		}
		_, err = db.ExecContext(ctx, "INSERT INTO charges (order_id, receipt) VALUES (?, ?)", order, receipt)
		return receipt, err
	}
}

func withOnlyonce(guard *onlyonce.Guard, charge chargeFunc) chargeFunc {
	return func(ctx context.Context, order string) (string, error) {
		answer, err := onlyonce.Do(ctx, guard, onlyonce.Request{
			ID:              onlyonce.ID{Tenant: "shop", Operation: "charge", Key: order},
			SkipFingerprint: true, // the order has only one amount
		}, func(ctx context.Context) (string, error) {
			receipt, err := charge(ctx, order)
			if err != nil {
				return "", onlyonce.Unknown(err) // the bank may have made the charge
			}
			return receipt, nil
		})
		return answer.Value, err
	}
}

func duringTheSwitch(guard *onlyonce.Guard, locks *redsync.Redsync, db *sql.DB, charge chargeFunc) chargeFunc {
	return withOnlyonce(guard, underLock(locks, db, charge))
}

func newLocks(t *testing.T) *redsync.Redsync { return redsync.New(goredis.NewPool(newRedis(t))) }

const chargesTable = "CREATE TABLE charges (order_id TEXT PRIMARY KEY, receipt TEXT NOT NULL)"

func charged(t *testing.T, charge chargeFunc, order, wantReceipt string) {
	t.Helper()
	if receipt, err := charge(t.Context(), order); err != nil || receipt != wantReceipt {
		t.Errorf("order %s: %q, %v, want %q", order, receipt, err, wantReceipt)
	}
}

func TestRedlock_ByHandAChargeBetweenTwoWritesIsMadeTwice(t *testing.T) {
	var b bank
	db := openDB(t, chargesTable)
	byHand := underLock(newLocks(t), db, b.chargeKey)
	charged(t, byHand, "1", "receipt 1 for 1")
	charged(t, byHand, "1", "receipt 1 for 1")
	dying := underLock(newLocks(t), db, func(ctx context.Context, order string) (string, error) {
		_, _ = b.chargeKey(ctx, order)
		return "", errNoAnswer // as if the process died here
	})
	if _, err := dying(t.Context(), "2"); !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
	charged(t, byHand, "2", "receipt 3 for 2")
	b.wantCharges(t, 3) // two of them for order 2
}

func TestRedlock_WithDoADoubtIsHeld(t *testing.T) {
	var b bank
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
	once := withOnlyonce(guard, b.chargeKey)
	charged(t, once, "1", "receipt 1 for 1")
	charged(t, once, "1", "receipt 1 for 1")
	b.fails = errNoAnswer
	if _, err := once(t.Context(), "2"); !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
	b.fails = nil
	if _, err := once(t.Context(), "2"); !errors.Is(err, onlyonce.ErrUnknown) {
		t.Errorf("a repeat got %v", err)
	}
	b.wantCharges(t, 2)
}

func TestRedlock_DuringTheSwitchAnOrderIsChargedOnceByBothVersions(t *testing.T) {
	var b bank
	db, locks := openDB(t, chargesTable), newLocks(t)
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	before, during := underLock(locks, db, b.chargeKey), duringTheSwitch(guard, locks, db, b.chargeKey)
	charged(t, before, "old", "receipt 1 for old")
	charged(t, during, "old", "receipt 1 for old")
	charged(t, during, "new", "receipt 2 for new")
	charged(t, before, "new", "receipt 2 for new")
	b.wantCharges(t, 2)
}
