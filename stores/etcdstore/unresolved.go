package etcdstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce/stores/internal/value"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// openCommands are the commands that run or whose outcome is unknown. Only Unresolved needs
// them: its first call begins to follow the heads of the records, until the store is closed.
type openCommands struct {
	mu        sync.Mutex
	following bool
	anew      context.CancelFunc // makes the heads be read again
	revision  int64              // up to which the heads have been followed; 0: they have not been read
	moved     chan struct{}      // closed when the revision changes
	records   map[[32]byte]openRecord
	err       error // why the heads could not be followed last
}

// An openRecord says when a command is unresolved, by the store's clock.
type openRecord struct {
	lease   bool  // it has a lease, which ends at since
	since   int64 // or when its outcome became unknown; 0: it is not known
	expires int64 // 0: never
}

// open returns when a command is unresolved. It is not ok for one that has ended with a known
// outcome.
func (h *head) open() (o openRecord, ok bool) {
	switch h.state {
	case value.Completed, value.Failed, value.Released:
		return o, false
	case value.Processing:
		return openRecord{lease: true, since: h.leaseUntil, expires: h.expiry()}, true
	}
	return openRecord{since: h.settledAt, expires: h.expiry()}, true
}

// Unresolved counts the records whose outcome is unknown: those in the unknown state and
// those whose lease has lapsed. It also returns for how long the oldest of them has been
// unresolved. The first call of a store reads the heads of all records. From then on, a
// watch tells the store of every change of a head until the store is closed.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	n, oldest, err = s.unresolved(ctx)
	return n, oldest, wrap("count unresolved records", err)
}

func (s *Store) unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("the call was not done within %v", s.timeout))
	defer cancel()
	s.follow()
	o := &s.open
	o.mu.Lock()
	known := o.revision
	o.mu.Unlock()
	var r *clientv3.GetResponse
	var at reading
	err = s.repeat(ctx, func(ctx context.Context) (err error) {
		r, err = request(ctx, s.cluster, func(ctx context.Context) (*clientv3.GetResponse, error) { return s.client.Get(ctx, s.keys.clock()) })
		if err == nil {
			at, err = s.clock.read(first(r))
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if r.Header.Revision < known { // an older state was restored
		o.forget()
	}
	if err := s.followed(limited, r.Header.Revision); err != nil {
		return 0, 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.records {
		if c.lease && c.since > at.judging || c.expires != 0 && c.expires <= at.judging {
			continue
		}
		n++
		if c.since > 0 {
			oldest = max(oldest, time.Duration(at.shown-c.since)*time.Microsecond)
		}
	}
	return n, oldest, nil
}

// follow begins to follow the heads, unless that has begun or the store is closed.
func (s *Store) follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.open.following {
		return
	}
	s.open.following = true
	s.open.forget()
	s.running.Go(func() {
		for s.closing.Err() == nil {
			s.open.fail(s.followHeads())
			select {
			case <-s.closing.Done():
			case <-time.After(waiters.IdleGrace):
			}
		}
	})
}

// followHeads reads the heads, unless they are known, and then follows their changes until
// the watch ends. One ends if what it has missed was compacted, or if its member has no
// leader.
func (s *Store) followHeads() error {
	o := &s.open
	ctx, cancel := context.WithCancel(s.closing)
	defer cancel()
	o.mu.Lock()
	o.anew = cancel
	revision := o.revision
	o.mu.Unlock()
	if revision == 0 {
		var records map[[32]byte]openRecord
		var err error
		revision, err = s.heads(ctx, func() { records = make(map[[32]byte]openRecord) }, func(p place, h *head) {
			if c, ok := h.open(); ok {
				records[p.hash] = c
			}
		})
		if err != nil {
			return err
		}
		o.read(ctx, revision, records)
	}
	watch := s.client.Watch(clientv3.WithRequireLeader(ctx), s.keys.records(), clientv3.WithRange(s.keys.recordsEnd()), clientv3.WithRev(revision+1))
	for r := range watch {
		switch {
		case r.CompactRevision != 0:
			o.forget()
			return r.Err()
		case r.Err() != nil:
			return r.Err()
		}
		if err := s.cluster.check(r.Header, nil); err != nil {
			o.forget()
			return err
		}
		s.note(ctx, &r)
	}
	return ctx.Err()
}

// note applies the events of a watch. The last of its events, or a response without any,
// says how far it has followed the heads.
func (s *Store) note(ctx context.Context, r *clientv3.WatchResponse) {
	o := &s.open
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for _, e := range r.Events {
		p, ok := s.keys.parse(string(e.Kv.Key))
		if !ok {
			continue
		}
		h, _ := parseHead(e.Kv.Value)
		if c, ok := h.open(); ok && e.Type != mvccpb.DELETE {
			o.records[p.hash] = c
		} else {
			delete(o.records, p.hash)
		}
	}
	if n := len(r.Events); n > 0 {
		o.move(max(o.revision, r.Events[n-1].Kv.ModRevision))
	} else {
		o.move(max(o.revision, r.Header.Revision))
	}
}

// followed returns once the heads have been followed up to a revision.
func (s *Store) followed(ctx context.Context, revision int64) error {
	o := &s.open
	for {
		o.mu.Lock()
		reached, moved, err := o.revision >= revision, o.moved, o.err
		o.mu.Unlock()
		if reached {
			return nil
		}
		// The revision may be that of another key. etcd then says nothing unless it is asked,
		// or while it is behind.
		_ = s.client.RequestProgress(clientv3.WithRequireLeader(ctx))
		select {
		case <-moved:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return context.Cause(ctx)
		}
	}
}

// read takes in the heads as they were at a revision, unless they have to be read again.
func (o *openCommands) read(ctx context.Context, revision int64, records map[[32]byte]openRecord) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() == nil {
		o.records, o.err = records, nil
		o.move(revision)
	}
}

// forget makes the heads be read again.
func (o *openCommands) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.anew != nil {
		o.anew()
	}
	o.records = nil
	o.move(0)
}

func (o *openCommands) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// move sets the revision. The caller has locked mu.
func (o *openCommands) move(revision int64) {
	o.revision = revision
	if o.moved != nil {
		close(o.moved)
	}
	o.moved = make(chan struct{})
}
