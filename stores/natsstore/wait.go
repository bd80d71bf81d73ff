package natsstore

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// Wait returns when the record of id may have changed or ctx has ended.
func (s *Store) Wait(ctx context.Context, id onlyonce.ID) error {
	p := s.stream.subjects.of(id)
	return wrap("wait", s.subscriptions.Wait(ctx, p.partition, p.name))
}

// listen listens to the subject on which the ends of a partition's commands are
// published. While the connection is away, it misses some.
func (s *stream) listen(ctx context.Context, partition byte, wake func(name string)) {
	connected := s.conn.StatusChanged(nats.CONNECTED)
	defer s.conn.RemoveStatusListener(connected)
	for ctx.Err() == nil {
		// Waiters poll as well, so an error only makes them slower.
		sub, err := s.conn.Subscribe(s.subjects.ended(partition), func(m *nats.Msg) { wake(string(m.Data)) })
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(waiters.IdleGrace):
			}
			continue
		}
		for ctx.Err() == nil {
			s.flush(ctx)
			wake("")
			select {
			case <-ctx.Done():
			case <-connected:
			}
		}
		_ = sub.Unsubscribe()
	}
}

// flush returns once the server has received everything sent before, or after a time limit.
func (s *stream) flush(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = s.conn.FlushWithContext(limited)
}
