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
	none  atomic.Pointer[time.Time] // when the server was asked, and had no synchronous standbys; nil: it has some
}

// noneFor is how long a server that has no synchronous standbys is not asked again.
const noneFor = time.Second

// A RowRunner runs a statement without arguments, and reports whether it returned a row.
type RowRunner func(ctx context.Context, statement string) (row bool, err error)

// Durable returns once the synchronous standbys have the settled record that was read, if
// there are any. If it had to wait, the record must be read again: see server.Look.
func (s *Standbys) Durable(ctx context.Context, k *record.Key, l server.Look, run RowRunner) (waited bool, err error) {
	r := l.Found
	if r == nil || r.Expired || r.SettledAt.IsZero() || s.flush.Knows(k, r.Fence) {
		return false, nil
	}
	if !r.IsSame(l.Before) {
		return s.Flushed(ctx, l.Began, run)
	}
	if s.none.Load() == nil {
		s.flush.Note(k, r.Fence)
	}
	return false, nil
}

// Flushed returns once the synchronous standbys have everything that was read from the server
// since began, if there are any. A role without the right to update needs it only then.
func (s *Standbys) Flushed(ctx context.Context, began time.Time, run RowRunner) (waited bool, err error) {
	if s.hadNone(began) {
		return false, nil
	}
	return true, s.flush.Wait(ctx, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.StepTimeout)
		defer cancel()
		asked := time.Now()
		waited, err := run(ctx, "standbys")
		if err == nil && waited {
			waited, err = run(ctx, "replicate")
		}
		switch {
		case err != nil:
		case waited:
			s.none.Store(nil)
		default:
			s.none.Store(&asked)
		}
		return err
	})
}

// hadNone reports whether the server had no synchronous standbys shortly before a read began.
// After the read, another server may have taken over, and have none.
func (s *Standbys) hadNone(began time.Time) bool {
	at := s.none.Load()
	return at != nil && !began.Before(*at) && began.Sub(*at) < noneFor
}

// Settled notes a settlement that the server has confirmed.
func (s *Standbys) Settled(k *record.Key, fence int64) { s.flush.Note(k, fence) }
