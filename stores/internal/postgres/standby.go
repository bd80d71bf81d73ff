package postgres

import (
	"context"

	"github.com/onlyonce-go/onlyonce/stores/internal/flush"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// Standbys holds back records that a failover could lose. A commit waits for the synchronous
// standbys before others see it, but the wait ends early, and the commit is seen, when the
// statement is canceled, as drivers do when a context ends, when its connection is
// terminated, or when the server restarts. A later commit that has waited covers all
// earlier ones.
type Standbys struct{ flush flush.Flusher }

// A Replicate runs the statement of that name, and returns the server that has executed it, or
// 0 if that waits for no standbys.
type Replicate func(ctx context.Context) (server int64, err error)

// Durable returns once the synchronous standbys have the settled record that was read, if
// there are any. It reports true if the record must be read again: see server.Dialect.
func (s *Standbys) Durable(ctx context.Context, k *record.Key, r *record.Stored, run Replicate) (again bool, err error) {
	if r == nil || r.Expired || r.SettledAt.IsZero() || r.Server == 0 || s.flush.Knows(k, r.Fence) {
		return false, nil
	}
	again, err = s.Flushed(ctx, r.Server, run)
	if !again && err == nil {
		s.flush.Note(k, r.Fence)
	}
	return again, err
}

// Flushed returns once the synchronous standbys have everything that was read from the server
// with a name; 0: it has none of them. It reports true if another server committed, or the
// same one after it was restarted: that says nothing about the earlier read.
func (s *Standbys) Flushed(ctx context.Context, from int64, run Replicate) (again bool, err error) {
	if from == 0 {
		return false, nil
	}
	by, err := s.flush.Wait(ctx, func() (int64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.StepTimeout)
		defer cancel()
		return run(ctx)
	})
	return by != from && err == nil, err
}

// Settled notes a settlement that the server has confirmed.
func (s *Standbys) Settled(k *record.Key, fence int64) { s.flush.Note(k, fence) }
