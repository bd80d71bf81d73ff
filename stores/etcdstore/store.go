package etcdstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("etcdstore: %s: %w", call, err)
}

// gets reads a record and the clock.
func (s *Store) gets(p place) []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(p.head), clientv3.OpGet(p.rest), clientv3.OpGet(s.keys.clock())}
}

// look reads the stored record of an ID; nil: there is none.
func (s *Store) look(ctx context.Context, id onlyonce.ID, p place) (v *stored, err error) {
	r, err := request(ctx, s.cluster, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).Then(s.gets(p)...).Commit()
	})
	if err != nil {
		return nil, err
	}
	return s.read(ctx, id, r)
}

// largeReads is how many results a process reads at a time. The member has each of them in
// memory, and everything else on its connection waits behind them.
const largeReads = 32

// find is look for a record whose outcome may be large, in its turn.
func (s *Store) find(ctx context.Context, id onlyonce.ID, p place) (*stored, error) {
	select {
	case s.large <- struct{}{}:
		defer func() { <-s.large }()
		return s.look(ctx, id, p)
	case <-ctx.Done():
		return nil, fmt.Errorf("%d other records were being read: %w", cap(s.large), ctx.Err())
	}
}

// A reader is look or find.
type reader func(ctx context.Context, id onlyonce.ID, p place) (*stored, error)

// read reads the responses to gets.
func (s *Store) read(ctx context.Context, id onlyonce.ID, r *clientv3.TxnResponse) (*stored, error) {
	at, err := s.clock.read(read(r, 2))
	if err != nil {
		return nil, err
	}
	v := decode(read(r, 0), read(r, 1), at)
	if v == nil {
		return nil, nil
	}
	if err := value.Check(&v.Stored, id); err != nil {
		return nil, err
	}
	return v, s.publishEnd(ctx, v.ended(at.judging), at)
}

// publishEnd publishes the clock if it does not show yet that a lease or a record has ended,
// so that it has ended for every process.
func (s *Store) publishEnd(ctx context.Context, end int64, at reading) error {
	if end <= at.published {
		return nil
	}
	return s.clock.ended(ctx, end)
}

// ended returns the latest end of the record that has come at an instant; 0: none.
func (v *stored) ended(now int64) (end int64) {
	if v.head.state == value.Processing && v.head.leaseUntil <= now {
		end = v.head.leaseUntil
	}
	if e := v.head.expiry(); e != 0 && e <= now {
		end = max(end, e)
	}
	return end
}

// write stores a change of the record that was seen, unless the record has changed since. It returns
// the new record, or an errConflict with the record that a reader finds now.
func (s *Store) write(ctx context.Context, id onlyonce.ID, p place, look reader, seen *stored, c *change) (*stored, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	at, err := s.clock.forLeases(ctx)
	if err != nil {
		return nil, err
	}
	var put []clientv3.OpOption
	var lease clientv3.LeaseID
	if stays := c.stays(); stays > 0 {
		if lease, err = s.leases.of(ctx, stays); err != nil {
			return nil, err
		}
		put = append(put, clientv3.WithLease(lease))
	}
	h := c.head(seen, at.now)
	data := append(h.fields().Append(make([]byte, 0, headSize+len(c.identity))), c.identity...)
	ops := append(make([]clientv3.Op, 0, 3), clientv3.OpPut(p.head, string(data), put...))
	switch {
	case len(c.steps)+len(c.outcome) > 0:
		ops = append(ops, clientv3.OpPut(p.rest, string(c.steps)+string(c.outcome), put...))
	case seen != nil:
		ops = append(ops, clientv3.OpDelete(p.rest))
	}
	clock := clientv3.OpGet(s.keys.clock()) // it shows which cluster has responded
	// The clock that was published may be ahead by what the request takes, but not for a good
	// part of the lease. What is seen as a record must not have expired for another process.
	limit := at.now + patience.Microseconds()
	if c.state == value.Processing {
		limit = min(limit, at.now+c.lease/8)
	}
	if seen != nil && !seen.Expired && seen.head.expiry() != 0 {
		limit = min(limit, seen.head.expiry()-1)
	}
	r, err := request(ctx, s.cluster, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(s.keys.clock()), "=", at.created),
			clientv3.Compare(clientv3.Value(s.keys.clock()), "<", string(binary.BigEndian.AppendUint64(nil, uint64(limit+1)))),
			clientv3.Compare(clientv3.ModRevision(p.head), "=", seen.modRevision()),
		).Then(append(ops, clock)...).Else(clock).Commit()
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.leases.forget(lease)
		return nil, err
	case err != nil:
		return nil, err
	case !r.Succeeded:
		now, err := look(ctx, id, p)
		if err == nil {
			err = errConflict
		}
		return now, err
	}
	s.publishSometimes(ctx)
	v := &stored{revision: r.Header.Revision, head: h, identity: c.identity, steps: c.steps, outcome: c.outcome}
	row := h.row()
	row.Now = at.now
	v.Stored = value.Decode(&row, string(c.identity), string(c.steps), string(c.outcome))
	return v, nil
}

// publishSometimes publishes the clock, if it was published long ago, without making a
// caller wait. So a process that has just begun does not set the clock far back.
func (s *Store) publishSometimes(ctx context.Context) {
	if !s.clock.isStale() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.busy {
		return
	}
	s.busy = true
	s.running.Go(func() {
		_ = s.clock.ended(context.WithoutCancel(ctx), 0) // the next change tries again
		s.mu.Lock()
		s.busy = false
		s.mu.Unlock()
	})
}

// A decision returns the value with which a call replaces a record, or nil. sent says
// that an earlier change of the call may have been stored.
type decision func(seen *stored, sent bool) (*change, error)

// change stores what a call decides, and returns what is stored then. guess says what is
// probably stored; unless it is known, change begins by looking.
func (s *Store) change(ctx context.Context, id onlyonce.ID, p place, look reader, guess *stored, known bool, decide decision) (v *stored, err error) {
	seen, sent, guessed := guess, false, known
	err = s.repeat(ctx, func(ctx context.Context) error {
		if !known {
			if seen, err = look(ctx, id, p); err != nil {
				return err
			}
		}
		known = false
		c, err := decide(seen, sent)
		if err != nil || c == nil {
			v = seen
			return err
		}
		v, err = s.write(ctx, id, p, look, seen, c)
		switch {
		case errors.Is(err, errConflict) && v != nil:
			seen, known = v, true
		case errors.Is(err, errNoSpace) && guessed:
			guessed, err = false, errConflict // it rejects also what would have changed nothing
		}
		sent = sent || doubtful(err)
		return err
	})
	return v, err
}

// Claim asks for the right to run a command.
func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	r, err := s.claim(ctx, &c)
	return r, wrap("claim", err)
}

func (s *Store) claim(ctx context.Context, c *onlyonce.Claim) (r onlyonce.Record, err error) {
	if err := c.Check(); err != nil {
		return r, err
	}
	if err := value.CheckOwner(c); err != nil {
		return r, err
	}
	p := s.keys.of(c.ID)
	// Most commands are new, so the first try expects nothing.
	v, err := s.change(ctx, c.ID, p, s.find, nil, !s.seenCache.Has(&p.hash), func(seen *stored, _ bool) (*change, error) {
		if seen.row().StandsAgainst(c) {
			return nil, nil
		}
		next := record.Next(c, seen.row(), 0, 0)
		begin := &change{
			state: value.Processing, owner: c.Owner, lease: value.Micros(c.Lease), lapsedKeep: value.LapsedKeep(c),
			attempt: int32(next.Attempt), anew: seen == nil || seen.Expired,
			identity: value.Identity(next.Fingerprint, next.Summary, next.ID), steps: value.Steps(next.Steps),
		}
		if !begin.anew {
			begin.outcome = value.Outcome(&next.Result, next.Error)
		}
		return begin, nil
	})
	if err != nil {
		return r, err
	}
	s.seenCache.Add(&p.hash)
	if v.Owner == c.Owner {
		s.recent.Add(&p.hash, v, v.head.size())
	}
	return v.Record, nil
}

// continued returns a change that continues the attempt of the record.
func (v *stored) continued() *change {
	return &change{
		state: v.head.state, final: v.head.final, owner: v.head.owner, fence: v.Fence, lapsedKeep: v.head.lapsedKeep,
		attempt: v.head.attempt, identity: v.identity, steps: v.steps, outcome: v.outcome,
	}
}

// Renew makes the hold's lease end one full lease from now and adds steps to
// those of the record.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	p := s.keys.of(h.ID)
	more := value.Steps(steps)
	guess, known := s.guess(&p, &h)
	v, err := s.change(ctx, h.ID, p, s.look, guess, known, func(seen *stored, sent bool) (*change, error) {
		if !seen.row().WritableBy(&h) {
			return nil, record.Lost(sent)
		}
		next := seen.continued()
		next.lease = value.Micros(lease)
		next.steps = append(next.steps[:len(next.steps):len(next.steps)], more...)
		return next, nil
	})
	if err == nil {
		s.recent.Add(&p.hash, v, v.head.size())
	}
	return wrap("renew", err)
}

// guess returns the record of a hold as this process has left it, while its lease is alive.
func (s *Store) guess(p *place, h *onlyonce.Hold) (v *stored, known bool) {
	v = s.recent.Find(&p.hash)
	if !v.row().WritableBy(h) {
		return nil, false
	}
	at, ok := s.clock.anchoredNow()
	return v, ok && at.now < v.head.leaseUntil
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("settle", err)
	}
	p := s.keys.of(h.ID)
	outcome := value.Outcome(&st.Result, st.Error)
	guess, known := s.guess(&p, &h)
	_, err := s.change(ctx, h.ID, p, s.look, guess, known, func(seen *stored, sent bool) (*change, error) {
		switch {
		case seen.row().SettledBy(&h, sent), sent && st.State == "" && seen.row().ReleasedBy(&h):
			return nil, nil
		case !seen.row().WritableBy(&h):
			return nil, record.Lost(sent)
		}
		return seen.continued().ended(&st, outcome), nil
	})
	if err == nil {
		s.recent.Remove(&p.hash)
	}
	return wrap("settle", err)
}

// ended returns how a settlement ends the attempt that c continues.
func (c *change) ended(st *onlyonce.Settlement, outcome []byte) *change {
	c.state, c.final, c.keep = value.Settled(st)
	c.lapsedKeep, c.outcome = 0, outcome
	if st.State == "" {
		c.identity, c.steps, c.outcome = nil, nil, nil
	}
	return c
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (r onlyonce.Record, err error) {
	p := s.keys.of(id)
	err = s.repeat(ctx, func(ctx context.Context) error {
		v, err := s.find(ctx, id, p)
		if err == nil {
			r, err = v.row().Found()
		}
		return err
	})
	return r, wrap("lookup", err)
}

// Resolve settles with st a record that no attempt holds; a zero st deletes it.
func (s *Store) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("resolve", err)
	}
	p := s.keys.of(seen.ID)
	owner := record.NewOwner()
	_, err := s.change(ctx, seen.ID, p, s.find, nil, false, func(v *stored, sent bool) (*change, error) {
		settled, err := value.Decide(v.row(), &seen, owner, &st, sent)
		if settled == nil || err != nil {
			return nil, err
		}
		next := v.continued()
		next.owner, next.fence, next.attempt = owner, 0, int32(settled.Attempt)
		next.identity, next.steps = value.Identity(settled.Fingerprint, settled.Summary, settled.ID), value.Steps(settled.Steps)
		return next.ended(&st, value.Outcome(&settled.Result, settled.Error)), nil
	})
	return wrap("resolve", err)
}
