package etcdstore

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// Wait returns when the record of id may have changed or ctx has ended.
func (s *Store) Wait(ctx context.Context, id onlyonce.ID) error {
	p := s.keys.of(id)
	return wrap("wait", s.subscriptions.Wait(ctx, p.partition, p.name))
}

// listen watches the heads of a partition. The client resumes a watch whose connection was
// lost. If etcd ended the watch, because the missed changes were compacted or its member has no
// leader, listen starts a new one.
func (s *Store) listen(ctx context.Context, partition byte, wake func(name string)) {
	prefix := s.keys.partition(partition)
	for ctx.Err() == nil {
		watch, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for r := range s.client.Watch(watch, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
			if r.Created {
				wake("")
			}
			for _, e := range r.Events {
				if h, ok := parseHead(e.Kv.Value); e.Type == mvccpb.DELETE || !ok || h.state != value.Processing {
					wake(strings.TrimPrefix(string(e.Kv.Key), prefix))
				}
			}
		}
		stop()
		// Waiters poll as well, so an error only makes them slower.
		select {
		case <-ctx.Done():
		case <-time.After(waiters.IdleGrace):
		}
	}
}
