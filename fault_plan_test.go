package onlyonce_test

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A faultPlan determines how the calls of the store fail that one operation
// makes: the seed determines what happens to the nth call of each method.
type faultPlan struct {
	seed    uint64
	percent uint64 // of the calls that have a fault

	mu    sync.Mutex
	calls map[string]uint64
}

type faultPlanKey struct{}

// withFaults returns a context whose calls have a fault plan of their own.
func withFaults(ctx context.Context, seed, percent uint64) context.Context {
	return context.WithValue(ctx, faultPlanKey{}, &faultPlan{seed: seed, percent: percent, calls: map[string]uint64{}})
}

// fates of a call.
const (
	fateFine         = iota
	fateFails        // at once
	fateLost         // it takes effect, and its response is lost
	fateLate         // it takes effect late
	fateLateResponse // its response is late
	fateTwice        // it takes effect twice
	fateSilent       // there is no response; it may have taken effect
	fates
)

func (p *faultPlan) fate(method string) (fate int, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[method]++
	h := fnv.New64a()
	h.Write([]byte(method))
	draw := rand.New(rand.NewPCG(p.seed, h.Sum64()+p.calls[method]))
	late = time.Duration(draw.Int64N(int64(3 * time.Second)))
	if draw.Uint64N(100) >= p.percent {
		return fateFine, late
	}
	return 1 + draw.IntN(fates-1), late
}

// A chaosStore is a simStore whose calls have the fates of their plans.
type chaosStore struct {
	*simStore
	renewals sync.Map // of each owner: *atomic.Int64
	calls    atomic.Int64
}

// suffer makes a call as its fate says.
func (s *chaosStore) suffer(ctx context.Context, method string, do func(context.Context) error) error {
	s.calls.Add(1)
	p, _ := ctx.Value(faultPlanKey{}).(*faultPlan)
	if p == nil {
		return do(ctx)
	}
	fate, late := p.fate(method)
	wait := func() {
		select {
		case <-time.After(late):
		case <-ctx.Done():
		}
	}
	through := context.WithoutCancel(ctx) // a server executes a call that it has received
	switch fate {
	case fateFails:
		return errDown
	case fateLost:
		return errors.Join(errDown, hide(do(through)))
	case fateLate:
		wait()
		if late%2 == 0 {
			return errors.Join(errDown, hide(do(through)))
		}
		return do(through)
	case fateLateResponse:
		err := do(through)
		wait()
		return err
	case fateTwice:
		if err := do(through); err != nil {
			return err
		}
		return do(through)
	case fateSilent:
		patience := time.Hour // of a store that observes its context
		if late%2 == 0 {
			_ = do(through)
			patience = 10 * time.Second // of one that waits for a commit
		}
		bound, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		<-bound.Done()
		return errors.Join(errDown, bound.Err())
	}
	return do(ctx)
}

// hide drops the contents of a lost response.
func hide(error) error { return nil }

func (s *chaosStore) Claim(ctx context.Context, c onlyonce.Claim) (r onlyonce.Record, err error) {
	err = s.suffer(ctx, "claim", func(ctx context.Context) (err error) { r, err = s.simStore.Claim(ctx, c); return err })
	return r, err
}

func (s *chaosStore) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	n, _ := s.renewals.LoadOrStore(h.Owner, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	return s.suffer(ctx, "renew", func(ctx context.Context) error { return s.simStore.Renew(ctx, h, lease, steps) })
}

func (s *chaosStore) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	return s.suffer(ctx, "settle", func(ctx context.Context) error { return s.simStore.Settle(ctx, h, st) })
}

func (s *chaosStore) Lookup(ctx context.Context, id onlyonce.ID) (r onlyonce.Record, err error) {
	err = s.suffer(ctx, "lookup", func(ctx context.Context) (err error) { r, err = s.simStore.Lookup(ctx, id); return err })
	return r, err
}

func (s *chaosStore) RunTx(ctx context.Context, c onlyonce.Claim, fn func(context.Context, simRows, onlyonce.Record) (onlyonce.Settlement, error)) (r onlyonce.Record, err error) {
	err = s.suffer(ctx, "run", func(ctx context.Context) (err error) { r, err = s.simStore.RunTx(ctx, c, fn); return err })
	return r, inDoubt(err)
}

// inDoubt is the error of a store for a transaction whose outcome it cannot find out.
func inDoubt(err error) error {
	if errors.Is(err, errDown) {
		return errors.Join(onlyonce.ErrUnknown, err)
	}
	return err
}

func (s *chaosStore) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, simRows) (onlyonce.Settlement, error)) error {
	settled := false
	return inDoubt(s.suffer(ctx, "settle in tx", func(ctx context.Context) error {
		if settled {
			return nil // two copies from one connection are one transaction
		}
		settled = true
		return s.simStore.SettleTx(ctx, h, fn)
	}))
}
