package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/outbox/queuetest"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A boxTx appends messages in a transaction of the caller's.
type boxTx struct {
	pgx.Tx
	box *pgxstore.Outbox
}

func (t boxTx) Append(ctx context.Context, messages ...outbox.Message) error {
	return t.box.Append(ctx, t.Tx, messages...)
}
func (t boxTx) Commit() error   { return t.Tx.Commit(context.Background()) }
func (t boxTx) Rollback() error { return t.Tx.Rollback(context.Background()) }

func TestOutbox_PostgreSQLKeepsTheRulesOfAQueue(t *testing.T) {
	pool := newPool(t, "pool=30")
	queuetest.Run(t, func(t *testing.T) queuetest.Opened {
		box := empty(t, pool).Outbox()
		if _, err := pool.Exec(t.Context(), "TRUNCATE onlyonce_outbox"); err != nil {
			t.Fatal(err)
		}
		return queuetest.Opened{Queue: box, Begin: func(ctx context.Context) (queuetest.Tx, error) {
			tx, err := pool.Begin(ctx)
			return boxTx{tx, box}, err
		}}
	})
}

func TestOutbox_ARelayHearsOfMessagesThatOthersAppend(t *testing.T) {
	schema := newSchema(t)
	here, elsewhere := open(t, openPool(t, "search_path="+schema)).Outbox(), open(t, openPool(t, "search_path="+schema))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := here.Wait(ctx); err != nil { // it has begun to listen
		t.Fatal(err)
	}
	appended, heard := 0, false
	for long := hearing; !heard && long < time.Minute; long *= 2 { // at first the other does not know that somebody listens
		_, err := elsewhere.RunTx(ctx, claimOf(owner()), func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			return completed, elsewhere.Outbox().Append(ctx, tx, outbox.Message{Topic: "orders.created"})
		})
		if err != nil {
			t.Fatal(err)
		}
		appended++
		soon, cancel := context.WithTimeout(ctx, long)
		heard = here.Wait(soon) == nil
		cancel()
	}
	if !heard {
		t.Error("nobody heard of a message")
	}
	if list, err := here.Lease(ctx, owner(), time.Minute, 1000); err != nil || len(list) != appended {
		t.Errorf("leased %v, %v", list, err)
	}
}
