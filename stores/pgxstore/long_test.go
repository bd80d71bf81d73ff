package pgxstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
)

// A sizer keeps the most bytes that one query received, the most that the arguments of one batch
// have, and whether a batch had short results beside long ones.
type sizer struct {
	received, sent atomic.Int64
	mixed          atomic.Bool
}

func most(of *atomic.Int64, n int64) {
	for was := of.Load(); was < n && !of.CompareAndSwap(was, n); was = of.Load() {
	}
}

const longBody, shortBody = 100 << 10, 1000

func (s *sizer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	var sent int64
	short := false
	count := func(arg []byte) {
		sent += int64(len(arg))
		short = short || len(arg) == shortBody
	}
	for _, q := range d.Batch.QueuedQueries {
		for _, arg := range q.Arguments {
			switch v := arg.(type) {
			case []byte:
				count(v)
			case [][]byte:
				for _, b := range v {
					count(b)
				}
			}
		}
	}
	most(&s.sent, sent)
	if short && sent >= longBody+shortBody {
		s.mixed.Store(true)
	}
	return ctx
}
func (*sizer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*sizer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (s *sizer) TraceQueryStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	counted := c.PgConn().Conn().(*countedConn)
	return context.WithValue(ctx, s, counted.received.Load())
}

func (s *sizer) TraceQueryEnd(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryEndData) {
	counted := c.PgConn().Conn().(*countedConn)
	most(&s.received, counted.received.Load()-ctx.Value(s).(int64))
}

type countedConn struct {
	net.Conn
	received atomic.Int64
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// Nobody waits behind the large responses of others, and a process does not have many of them in
// memory at a time because they were sent together.
func TestGroup_LongResultsGoApartFromShortOnes(t *testing.T) {
	cfg := newPool(t).Config()
	seen := new(sizer)
	cfg.ConnConfig.Tracer = seen
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &countedConn{Conn: c}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := open(t, pool)
	var claims [many]onlyonce.Record
	crowd(func(i int) {
		r, err := s.Claim(t.Context(), claimOf(fmt.Sprint("k", i)))
		if err != nil {
			t.Error(err)
		}
		claims[i] = r
	})
	size := func(i int) int {
		if i%2 == 0 {
			return longBody
		}
		return shortBody
	}
	crowd(func(i int) {
		st := onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour, Result: onlyonce.Result{Body: make([]byte, size(i))}}
		if err := s.Settle(t.Context(), holdOf(claims[i]), st); err != nil {
			t.Error(err)
		}
	})
	if n := seen.sent.Load(); n > 9*longBody || seen.mixed.Load() {
		t.Errorf("%d bytes of results were sent together, with short ones: %v", n, seen.mixed.Load())
	}
	var all sync.WaitGroup
	for range 3 { // some share a record
		all.Go(func() {
			crowd(func(i int) {
				r, err := s.Lookup(t.Context(), claims[i].ID)
				if err != nil || r.State != onlyonce.StateCompleted || len(r.Result.Body) != size(i) {
					t.Errorf("record %d is %s with %d bytes, error %v", i, r.State, len(r.Result.Body), err)
				}
			})
		})
	}
	all.Wait()
	if n := seen.received.Load(); n > 2*longBody {
		t.Errorf("one lookup received %d bytes", n)
	}
}
