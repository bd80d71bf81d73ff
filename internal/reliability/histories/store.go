//go:build linux

package histories

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Store is what a client calls: a store with all its optional powers, but for
// transactions.
type Store interface {
	onlyonce.Store
	onlyonce.Purger
	onlyonce.Resolver
}

// A Database is a store and the business rows of its transactions.
type Database interface {
	Store
	runTx(ctx context.Context, c onlyonce.Claim, row string, fn func(onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error)
	settleTx(ctx context.Context, h onlyonce.Hold, row string, fn func() (onlyonce.Settlement, error)) error
	rows(ctx context.Context, key string) ([]string, error)
	close() error
}

// A database is a store with transactions of one type.
type database[TX any, S interface {
	Store
	onlyonce.TxStore[TX]
}] struct {
	Store
	in     S
	insert func(ctx context.Context, tx TX, key, row string) error
	read   func(ctx context.Context, key string) ([]string, error)
	shut   func() error
}

func (d database[TX, S]) runTx(ctx context.Context, c onlyonce.Claim, row string, fn func(onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	return d.in.RunTx(ctx, c, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
		if err := d.insert(ctx, tx, c.ID.Key, row); err != nil {
			return onlyonce.Settlement{}, err
		}
		return fn(r)
	})
}

func (d database[TX, S]) settleTx(ctx context.Context, h onlyonce.Hold, row string, fn func() (onlyonce.Settlement, error)) error {
	return d.in.SettleTx(ctx, h, func(ctx context.Context, tx TX) (onlyonce.Settlement, error) {
		if err := d.insert(ctx, tx, h.ID.Key, row); err != nil {
			return onlyonce.Settlement{}, err
		}
		return fn()
	})
}

func (d database[TX, S]) rows(ctx context.Context, key string) ([]string, error) {
	return d.read(ctx, key)
}
func (d database[TX, S]) close() error { return d.shut() }

// memory is a store without transactions.
type memory struct{ Store }

var errNoTransactions = fmt.Errorf("%w: the store has no transactions", onlyonce.ErrUnavailable)

func (memory) runTx(context.Context, onlyonce.Claim, string, func(onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	return onlyonce.Record{}, errNoTransactions
}

func (memory) settleTx(context.Context, onlyonce.Hold, string, func() (onlyonce.Settlement, error)) error {
	return errNoTransactions
}
func (memory) rows(context.Context, string) ([]string, error) { return nil, nil }
func (memory) close() error                                   { return nil }

// errOwn is the error of a transaction's function.
var errOwn = errors.New("the function's own error")

// do makes the call, and says what became of it.
func do(ctx context.Context, db Database, key string, c *Call, pause time.Duration) *Outcome {
	o := &Outcome{}
	id := onlyonce.ID{Tenant: "t", Operation: "history", Key: key}
	hold := onlyonce.Hold{ID: id, Owner: c.Owner, Fence: c.Fence}
	claim := onlyonce.Claim{
		ID: id, Owner: c.Owner, Fingerprint: fingerprints[c.Fingerprint], SkipFingerprint: c.Fingerprint == 0, Lease: c.Lease, RetryFailed: c.RetryFailed, TakeUnknown: c.TakeUnknown,
	}
	body := func(r onlyonce.Record) (onlyonce.Settlement, error) {
		o.Fences = append(o.Fences, SeenFence{r.Fence, now()})
		time.Sleep(pause)
		switch c.Ending {
		case Fails:
			return c.settlement(), errOwn
		case GivesUp:
			return onlyonce.Settlement{}, errOwn
		case Panicked:
			panic(errOwn)
		}
		return c.settlement(), nil
	}
	var r onlyonce.Record
	var err error
	shows := false
	switch c.Kind {
	case Claim:
		r, err = db.Claim(ctx, claim)
		shows = true
	case Renew:
		var steps map[string][]byte
		if c.Step != "" {
			steps = map[string][]byte{c.Step: []byte(c.Step)}
		}
		err = db.Renew(ctx, hold, c.Lease, steps)
	case Settle:
		err = db.Settle(ctx, hold, c.settlement())
	case RunTx:
		r, err = recovered(func() (onlyonce.Record, error) { return db.runTx(ctx, claim, c.Row, body) })
		shows = true
	case SettleTx:
		_, err = recovered(func() (onlyonce.Record, error) {
			return r, db.settleTx(ctx, hold, c.Row, func() (onlyonce.Settlement, error) { return body(r) })
		})
	case Lookup:
		r, err = db.Lookup(ctx, id)
		shows = true
	case Resolve, Remove:
		err = db.Resolve(ctx, onlyonce.Record{ID: id, Fence: c.Fence, State: c.Saw}, c.settlement())
	case Purge:
		_, err = db.Purge(ctx, 50)
	case Rows:
		o.Rows, err = db.rows(ctx, key)
	}
	o.End = now()
	o.Verdict = verdictOf(err)
	if err != nil {
		o.Err = err.Error()
	} else if shows {
		o.Record = seenOf(&r)
	}
	return o
}

// recovered makes the panic of a transaction's function its error.
func recovered(f func() (onlyonce.Record, error)) (r onlyonce.Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != any(errOwn) {
				panic(p)
			}
			err = errOwn
		}
	}()
	return f()
}

func verdictOf(err error) Verdict {
	own := errors.Is(err, errOwn)
	for _, v := range []struct {
		err     error
		verdict Verdict
	}{
		{onlyonce.ErrUnknown, Doubt},
		{onlyonce.ErrLost, Lost},
		{onlyonce.ErrNotFound, NotFound},
		{onlyonce.ErrInFlight, InFlight},
		{onlyonce.ErrUnavailable, Nothing},
	} {
		switch {
		case !errors.Is(err, v.err):
		case !own:
			return v.verdict
		case v.verdict == Lost:
			return OwnLost
		default:
			return Doubt
		}
	}
	switch {
	case err == nil:
		return Done
	case err == errOwn: // the store must return it as it is
		return Own
	}
	return Doubt
}
