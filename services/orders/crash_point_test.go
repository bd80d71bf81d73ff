package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// TestMain lets the test binary be a server that kills itself at a named point.
func TestMain(m *testing.M) {
	if settings := os.Getenv("ORDERS_TEST_SERVER"); settings != "" {
		serveForTest(settings)
		return
	}
	os.Exit(m.Run())
}

// Where a server can die.
const (
	afterClaim     = "after the claim"
	inWork         = "in the work"
	afterPayment   = "after the payment before it is noted"
	beforeCommit   = "after the work before the commit"
	inCommit       = "during the commit"
	beforeResponse = "after the commit before the response"
	beforeMark     = "between publish and mark"
	beforeTaken    = "in the consumer before its commit"
	afterTaken     = "in the consumer after its commit"
)

// A testServer holds the settings of the server process of a test.
type testServer struct {
	Database apitest.Database
	Charge   string // the provider's URL; "": nothing is charged
	Point    string // where it kills itself; "": nowhere
	After    int32  // how often it passes there before
}

// serveForTest serves until its standard input ends, or it kills itself.
func serveForTest(settings string) {
	var s testServer
	try(json.Unmarshal([]byte(settings), &s))
	ctx := context.Background()
	db, store, err := s.Database.Open(ctx)
	try(err)
	p := &point{name: s.Point}
	p.left.Store(s.After)
	cfg := Config{AllowAnonymous: true, Lease: 2 * time.Second}
	if s.Charge != "" {
		cfg.Charge = p.afterPayment(charge(s.Charge))
	}
	api, err := New(ctx, db, &fragile{store, p}, &fragileOutbox{store.Outbox(), p}, cfg)
	try(err)
	go func() { try(api.Run(ctx)) }()
	fmt.Println(httptest.NewServer(api).URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func try(err error) {
	if err != nil {
		panic(err)
	}
}

// A point is where the process kills itself as kill -9 does.
type point struct {
	name string
	left atomic.Int32
}

// pass ends the process if this is its point, and the time has come.
func (p *point) pass(name string) {
	if name != "" && p.name == name && p.left.Add(-1) < 0 {
		die()
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// soon ends the process within the next moments.
func (p *point) soon(name string) {
	if name != "" && p.name == name && p.left.Add(-1) < 0 {
		go func() {
			time.Sleep(rand.N(2 * time.Millisecond))
			die()
		}()
	}
}

func (p *point) afterPayment(charge func(context.Context, Charge) (string, error)) func(context.Context, Charge) (string, error) {
	return func(ctx context.Context, c Charge) (string, error) {
		ref, err := charge(ctx, c)
		p.pass(afterPayment)
		return ref, err
	}
}

// A fragile store has points at which its process dies.
type fragile struct {
	*sqlstore.Store
	point *point
}

// points are those that a command passes; the consumer's has others.
type points struct{ claim, done, commit, answer string }

func pointsOf(id onlyonce.ID) points {
	if id.Operation == operation {
		return points{afterClaim, beforeCommit, inCommit, beforeResponse}
	}
	return points{done: beforeTaken, answer: afterTaken}
}

func (f *fragile) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	rec, err := f.Store.Claim(ctx, c)
	f.point.pass(pointsOf(c.ID).claim)
	return rec, err
}

func (f *fragile) RunTx(ctx context.Context, c onlyonce.Claim, fn apitest.Func) (onlyonce.Record, error) {
	at := pointsOf(c.ID)
	rec, err := f.Store.RunTx(ctx, c, func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		f.point.pass(at.claim)
		s, err := fn(ctx, tx, r)
		f.point.pass(at.done)
		f.point.soon(at.commit)
		return s, err
	})
	f.point.pass(at.answer)
	return rec, err
}

func (f *fragile) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, *sql.Tx) (onlyonce.Settlement, error)) error {
	at := pointsOf(h.ID)
	err := f.Store.SettleTx(ctx, h, func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error) {
		s, err := fn(ctx, tx)
		f.point.pass(at.done)
		f.point.soon(at.commit)
		return s, err
	})
	f.point.pass(at.answer)
	return err
}

// A fragile outbox, too.
type fragileOutbox struct {
	Outbox
	point *point
}

// Wait is there so that the relay wakes as it does elsewhere.
func (f *fragileOutbox) Wait(ctx context.Context) error { return f.Outbox.(outbox.Waker).Wait(ctx) }

func (f *fragileOutbox) Append(ctx context.Context, tx *sql.Tx, messages ...outbox.Message) error {
	f.point.pass(inWork)
	return f.Outbox.Append(ctx, tx, messages...)
}

func (f *fragileOutbox) Settle(ctx context.Context, owner string, verdicts []outbox.Verdict) error {
	f.point.pass(beforeMark)
	return f.Outbox.Settle(ctx, owner, verdicts)
}
