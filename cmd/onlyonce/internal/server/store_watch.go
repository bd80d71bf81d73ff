package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A StoreWatch checks whether a store takes commands by recording one: a full disk, or
// a server that became read-only, still serves reads. It logs once when the store is
// lost, and once when it is back.
type StoreWatch struct {
	name  string
	store onlyonce.Store
	log   *slog.Logger

	suspect chan struct{} // a request met an error

	mu    sync.Mutex
	tried time.Time
	lost  time.Time // zero: it is not
	err   error     // of the last try
}

// NewStoreWatch returns a watch over a store, which is called name in the log.
func NewStoreWatch(name string, store onlyonce.Store, log *slog.Logger) *StoreWatch {
	return &StoreWatch{name: name, store: store, log: log, suspect: make(chan struct{}, 1)}
}

// probeEvery is how often the store is probed at most, and how often while it is lost.
const probeEvery = time.Second

var errStore = errors.New("the store can't be reached or written")

// Check returns an error if the store takes no commands. It is one of Health.Checks.
func (s *StoreWatch) Check(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.tried) >= probeEvery {
		s.note(s.probe(context.WithoutCancel(ctx))) // a caller that goes away says nothing about the store
	}
	if s.err != nil {
		return errStore
	}
	return nil
}

// note records the outcome of a probe, and logs it if it has changed.
func (s *StoreWatch) note(err error) {
	s.tried = time.Now()
	switch {
	case err != nil && s.lost.IsZero():
		s.lost = s.tried
		s.log.Warn("the store takes no commands: requests with a key are rejected until it does", "store", s.name, "error", err)
	case err == nil && !s.lost.IsZero():
		s.log.Info("the store takes commands again", "store", s.name, "lost_for_ms", s.tried.Sub(s.lost).Milliseconds())
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

// Doubt makes Run probe the store soon. It does not wait.
func (s *StoreWatch) Doubt() {
	select {
	case s.suspect <- struct{}{}:
	default:
	}
}

// Run probes the store when a request met an error, and as long as the store is lost.
func (s *StoreWatch) Run(ctx context.Context) error {
	again := time.NewTicker(probeEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.suspect:
			_ = s.Check(ctx) // logged
		case <-again.C:
			s.mu.Lock()
			lost := !s.lost.IsZero()
			s.mu.Unlock()
			if lost {
				_ = s.Check(ctx) // logged
			}
		}
	}
}
