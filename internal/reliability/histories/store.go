//go:build linux

package histories

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Store has the methods that clients call, except for transactions.
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
	closer func() error
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
func (d database[TX, S]) close() error { return d.closer() }

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

// errFunction is the error of a transaction's function.
var errFunction = errors.New("the function's own error")

// do makes the call, and returns its outcome.
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
			return c.settlement(), errFunction
		case GivesUp:
			return onlyonce.Settlement{}, errFunction
		case Panicked:
			panic(errFunction)
		}
		return c.settlement(), nil
	}
	var r onlyonce.Record
	var err error
	returnsRecord := false
	switch c.Kind {
	case Claim:
		r, err = db.Claim(ctx, claim)
		returnsRecord = true
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
		returnsRecord = true
	case SettleTx:
		_, err = recovered(func() (onlyonce.Record, error) {
			return r, db.settleTx(ctx, hold, c.Row, func() (onlyonce.Settlement, error) { return body(r) })
		})
	case Lookup:
		r, err = db.Lookup(ctx, id)
		returnsRecord = true
	case Resolve, Remove:
		err = db.Resolve(ctx, onlyonce.Record{ID: id, Fence: c.Fence, State: c.SeenState}, c.settlement())
	case Purge:
		_, err = db.Purge(ctx, 50)
	case Rows:
		o.Rows, err = db.rows(ctx, key)
	}
	o.End = now()
	o.Verdict = verdictOf(err)
	if err != nil {
		o.Err = err.Error()
	} else if returnsRecord {
		o.Record = seenRecord(&r)
	}
	return o
}

// recovered turns the panic of a transaction's function into an error.
func recovered(f func() (onlyonce.Record, error)) (r onlyonce.Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != any(errFunction) {
				panic(p)
			}
			err = errFunction
		}
	}()
	return f()
}

func verdictOf(err error) Verdict {
	own := errors.Is(err, errFunction)
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
	case err == errFunction: // the store must return it as it is
		return Own
	}
	return Doubt
}
