package etcdstore

import (
	"context"
	"math/bits"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases are the leases of etcd by which the server deletes records, long after they have
// expired. Records that stay for about as long share one, because each lease costs the
// servers memory and, at its end, a transaction that deletes all of its keys at once.
type leases struct {
	client  *clientv3.Client
	cluster *cluster

	mu     sync.Mutex
	shared map[int64]*lease // by how many seconds their records stay
}

// A lease is an etcd lease that a process attaches to its records.
type lease struct {
	id     clientv3.LeaseID
	begun  time.Time     // at the latest
	window time.Duration // in which it is given to records
	keys   int
}

// mostKeys is how many records share a lease.
const mostKeys = 5000

func newLeases(client *clientv3.Client, c *cluster) *leases {
	return &leases{client: client, cluster: c, shared: make(map[int64]*lease)}
}

// span returns for how many seconds the records of a lease stay at least, of which one stays
// for a time: up to an eighth longer.
func span(stays time.Duration) int64 {
	s := int64(stays/time.Second) + 1
	step := int64(1) << max(bits.Len64(uint64(s))-4, 0)
	return (s + step - 1) / step * step
}

// of returns the lease for a record that the server must keep for a time. It ends at least
// that much later, even if the process is suspended meanwhile for an eighth of the time.
func (l *leases) of(ctx context.Context, stays time.Duration) (clientv3.LeaseID, error) {
	s := span(stays)
	l.mu.Lock()
	defer l.mu.Unlock()
	shared := l.shared[s]
	if shared == nil || shared.keys >= mostKeys || shared.age() > shared.window {
		now := time.Now()
		r, err := request(ctx, l.cluster, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) { return l.client.Grant(ctx, s+s/4) })
		if err != nil {
			return 0, err
		}
		shared = &lease{id: r.ID, begun: now, window: time.Duration(s/8) * time.Second}
		l.shared[s] = shared
		l.clean()
	}
	shared.keys++
	return shared.id, nil
}

// age is how old a lease is by the clock, of the monotonic and the wall clock, that has gone
// further: one stops while a machine is suspended, and the other may be set back.
func (l *lease) age() time.Duration {
	now := time.Now()
	return max(now.Sub(l.begun), now.Round(0).Sub(l.begun.Round(0)))
}

// clean forgets leases that are given to no more records. The caller has locked mu.
func (l *leases) clean() {
	for s, shared := range l.shared {
		if shared.age() > shared.window {
			delete(l.shared, s)
		}
	}
}

// forget forgets a lease that the server does not have.
func (l *leases) forget(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, shared := range l.shared {
		if shared.id == id {
			delete(l.shared, s)
		}
	}
}
