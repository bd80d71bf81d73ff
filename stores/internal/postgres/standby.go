package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/flush"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// Standbys holds back records that a failover could lose. A commit waits for the synchronous
// standbys before others see it, but the wait ends early, and the commit is seen, when the
// statement is canceled, as drivers do when a context ends, when its connection is
// terminated, or when the server restarts. A later commit that has waited covers all
// earlier ones.
type Standbys struct {
	flush flush.Flusher
	none  atomic.Pointer[time.Time] // when the server last had no synchronous standbys
}

// noneFor is how long a server that has no synchronous standbys is not asked again.
const noneFor = time.Second

// A RowRunner runs a statement without arguments, and reports whether it returned a row.
type RowRunner func(ctx context.Context, statement string) (row bool, err error)

// Durable returns once the settled record that was read is on the synchronous standbys, if
// there are any.
func (s *Standbys) Durable(ctx context.Context, k *record.Key, r *record.Stored, run RowRunner) error {
	if r == nil || r.Expired || r.SettledAt.IsZero() || s.flush.Knows(k, r.Fence) {
		return nil
	}
	err := s.Flushed(ctx, run)
	if err == nil && !s.haveNone() {
		s.flush.Note(k, r.Fence)
	}
	return err
}

// Flushed returns once everything that was read before is on the synchronous standbys, if
// there are any. A role without the right to update needs it only then.
func (s *Standbys) Flushed(ctx context.Context, run RowRunner) error {
	if s.haveNone() {
		return nil
	}
	return s.flush.Wait(ctx, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.StepTimeout)
		defer cancel()
		asked := time.Now()
		waited, err := run(ctx, "standbys")
		if err == nil && waited {
			waited, err = run(ctx, "replicate")
		}
		if err == nil && !waited {
			s.none.Store(&asked)
		}
		return err
	})
}

func (s *Standbys) haveNone() bool {
	at := s.none.Load()
	return at != nil && time.Since(*at) < noneFor
}

// Settled notes a settlement that the server has confirmed.
func (s *Standbys) Settled(k *record.Key, fence int64) { s.flush.Note(k, fence) }
