package pgxstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// A statementCounter counts the statements that are sent.
type statementCounter struct{ n atomic.Int64 }

func (c *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Each statement is a round trip, and all have to end within the Timeout of the relay.
func TestOutbox_ManyMessagesAreReturnedInFewRoundTrips(t *testing.T) {
	cfg, sent := newPool(t).Config(), new(statementCounter)
	cfg.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	box := open(t, pool).Outbox()
	const n = 500
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := box.Append(t.Context(), tx, outbox.Message{Topic: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := box.Lease(t.Context(), "a", time.Minute, n)
	if err != nil || len(list) != n {
		t.Fatal(len(list), err)
	}
	var verdicts []outbox.Verdict
	for i, e := range list {
		v := outbox.Verdict{Seq: e.Seq, State: outbox.StateWaiting}
		switch {
		case i < n/4:
			v.State = outbox.StatePublished
		case i < n/2:
			v.Attempts, v.Error, v.After = 1, "away", time.Hour
		}
		verdicts = append(verdicts, v)
	}
	before := sent.n.Load()
	if err := box.Settle(t.Context(), "a", verdicts); err != nil {
		t.Fatal(err)
	}
	if trips := sent.n.Load() - before; trips > 10 {
		t.Errorf("%d messages were settled in %d statements", n, trips)
	}
	if again, err := box.Lease(t.Context(), "b", time.Minute, n); err != nil || len(again) != n/2 {
		t.Error(len(again), err)
	}
}
