package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/promonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// A StoreWatch checks whether a store takes commands by recording one: a full disk, or
// a server that became read-only, still serves reads. It logs once when the store is
// lost, and once when it is back.
type StoreWatch struct {
	name  string
	store onlyonce.Store
	count *promonce.Store
	log   *slog.Logger

	requested chan struct{} // has a value if CheckSoon was called

	turn    chan struct{} // guards the fields below; a caller whose context ends does not wait for it
	probing chan error    // receives the error of the probe that runs; nil: none
	tried   time.Time
	lost    time.Time // zero: it is not
	err     error     // of the last probe
}

// NewStoreWatch returns a watch over a store, which is called name in the log. Failed
// probes are counted in count.
func NewStoreWatch(name string, store onlyonce.Store, count *promonce.Store, log *slog.Logger) *StoreWatch {
	return &StoreWatch{name: name, store: store, count: count, log: log, requested: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

const (
	// probeEvery is how often the store is probed at most, and how often while it is lost.
	probeEvery = time.Second
	// lookEvery is how often it is probed at least, so that its loss is noticed without a
	// request.
	lookEvery = 5 * time.Second
	// silentAfter is when a probe counts as failed that has ignored its time-out.
	silentAfter = readyWithin + readyWithin/2
)

var (
	errStore  = errors.New("the store can't be reached or written")
	errSilent = fmt.Errorf("the store did not respond within %v", silentAfter)
)

// Check returns an error if the store takes no commands. It is one of Health.Checks. It
// returns within silentAfter. However many callers there are, the store is probed once
// in probeEvery, and by one of them at a time.
func (s *StoreWatch) Check(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	default: // another caller has its turn
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return errStore
		}
	}
	defer func() { <-s.turn }()
	if time.Since(s.tried) >= probeEvery {
		s.note(s.try(context.WithoutCancel(ctx))) // a caller that goes away says nothing about the store
	}
	if s.err != nil {
		return errStore
	}
	return nil
}

// try probes the store, or waits for a probe that has not ended since the last try.
func (s *StoreWatch) try(ctx context.Context) error {
	if s.probing == nil {
		ended := make(chan error, 1)
		s.probing = ended
		go func() { ended <- s.probe(ctx) }()
	}
	select {
	case err := <-s.probing:
		s.probing = nil
		return err
	case <-time.After(silentAfter):
		return errSilent
	}
}

// note records the outcome of a probe, and logs it if it has changed.
func (s *StoreWatch) note(err error) {
	s.tried = time.Now()
	s.count.CountError(err)
	switch {
	case err != nil && s.lost.IsZero():
		s.lost = s.tried
		s.log.Warn("the store is unavailable: it accepts no commands", "store", s.name, "kind", storeurl.KindOf(err), "error", err)
	case err == nil && !s.lost.IsZero():
		s.log.Info("the store is available again", "store", s.name, "lost_for_ms", s.tried.Sub(s.lost).Milliseconds())
		s.lost = time.Time{}
	}
	s.err = err
}

// probeID names the command that is recorded. It is the same for all processes,
// so that the next one clears up after one that died.
var probeID = onlyonce.ID{Tenant: "onlyonce", Operation: "readiness", Key: "probe"}

// probe records a command and releases it.
func (s *StoreWatch) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	owner := rand.Text()[:16]
	r, err := s.store.Claim(ctx, onlyonce.Claim{
		ID: probeID, Owner: owner, SkipFingerprint: true, Lease: 2 * readyWithin, Keep: time.Minute, RetryFailed: true, TakeUnknown: true,
	})
	if err != nil || r.Owner != owner { // another process has just done the same
		return err
	}
	err = s.store.Settle(ctx, onlyonce.Hold{ID: probeID, Owner: owner, Fence: r.Fence}, onlyonce.Settlement{})
	if errors.Is(err, onlyonce.ErrLost) {
		return nil // it took long, and another process has taken over
	}
	return err
}

// CheckSoon makes Run probe the store soon. It does not wait.
func (s *StoreWatch) CheckSoon() {
	select {
	case s.requested <- struct{}{}:
	default:
	}
}

// Run probes the store every lookEvery, when a request met an error, and more often as
// long as the store is lost.
func (s *StoreWatch) Run(ctx context.Context) error {
	again := time.NewTicker(probeEvery)
	defer again.Stop()
	for requested := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-s.requested:
			requested = true
		case <-again.C:
		}
		s.turn <- struct{}{}
		since := time.Since(s.tried)
		due := since >= lookEvery || (requested || !s.lost.IsZero()) && since >= probeEvery
		<-s.turn
		if due {
			requested = false
			_ = s.Check(ctx) // logged
		}
	}
}
