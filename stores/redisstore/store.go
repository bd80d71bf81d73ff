package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// ErrForgotten means that the keys that Migrate creates are missing: the server has
// lost its data, somebody flushed it, or it was never set up. New commands are
// rejected until Migrate is called.
var ErrForgotten = errors.New("the Redis server has lost its records, or has not been set up: find out why, then call Migrate once")

// errTooLarge is the error for a record that the server does not accept.
var errTooLarge = fmt.Errorf("%w: the record is larger than the server's proto-max-bulk-len, and nothing was written: store less, or raise the limit", onlyonce.ErrTooLarge)

// highestFence is the highest one for which the scripts can count a higher one.
const highestFence = 1 << 52

func micros(d time.Duration) string {
	return strconv.FormatInt(value.Micros(d), 10)
}

func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisstore: %s: %w", call, err)
}

// failed returns the error of a call about an ID, if there is one.
func (s *Store) failed(ctx context.Context, call string, id onlyonce.ID, err error) error {
	if errors.Is(err, ErrForgotten) {
		err = s.explain(ctx, id.Hash()[0], err)
	}
	return wrap(call, err)
}

// run runs a script and waits until enough replicas have received everything that it wrote and
// read.
func (s *Store) run(ctx context.Context, sc *script, keys []string, args ...string) (reply rueidis.RedisMessage, err error) {
	if err := ctx.Err(); err != nil {
		return reply, err
	}
	for _, arg := range args {
		if int64(len(arg)) > s.longest {
			return reply, errTooLarge
		}
	}
	if s.replicas == 0 && !s.flushed {
		reply, err = sc.run(ctx, s.client, keys, args)
	} else {
		// WAIT and WAITAOF are about the connection's own commands.
		err = s.client.Dedicated(func(c rueidis.DedicatedClient) error {
			mark := markOf(keys[0])
			if sc == claimScript && s.unconfirmed.Load() != nil {
				if err := s.confirmed(ctx, c, mark); err != nil {
					return fmt.Errorf("%w: %w", onlyonce.ErrUnavailable, err)
				}
			}
			if reply, err = sc.run(ctx, c, keys, args); err != nil {
				return err
			}
			err := s.confirmed(ctx, c, mark)
			if last := s.unconfirmed.Load(); err != nil {
				s.unconfirmed.Store(&mark)
			} else if last != nil && *last == mark { // in a cluster, another primary's replicas may still be down
				s.unconfirmed.CompareAndSwap(last, nil)
			}
			return err
		})
	}
	return reply, failure(err)
}

// failure converts an error of Redis to the store's error.
func failure(err error) error {
	failed, ok := rueidis.IsRedisErr(err)
	switch {
	case ok && strings.HasPrefix(failed.Error(), "FORGOTTEN"):
		return ErrForgotten
	case ok && strings.Contains(failed.Error(), "invalid bulk length"):
		return errTooLarge
	}
	return err
}

// confirmed waits until enough servers have what the connection has written and read.
// Since Redis 7.2, the servers wait for the connection's last write only, so there has
// to be one after what it has read. The client waits without end for the reply to a
// command that blocks, unless the context ends.
func (s *Store) confirmed(ctx context.Context, c rueidis.DedicatedClient, mark string) error {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout+s.replicaTimeout)
	defer cancel()
	wait := c.B().Wait().Numreplicas(int64(s.replicas)).Timeout(s.replicaTimeout.Milliseconds()).Build()
	if s.flushed {
		wait = c.B().Waitaof().Numlocal(1).Numreplicas(int64(s.replicas)).Timeout(s.replicaTimeout.Milliseconds()).Build()
	}
	results := c.DoMulti(ctx, c.B().Eval().Script(markScript).Numkeys(1).Key(mark).Build(), wait)
	if err := results[0].Error(); err != nil {
		return err
	}
	if s.flushed {
		return s.onDisk(results[1])
	}
	n, err := results[1].AsInt64()
	if err == nil && n < int64(s.replicas) {
		err = fmt.Errorf("%d of %d replicas have received the change within %v", n, s.replicas, s.replicaTimeout)
	}
	return err
}

// onDisk reads the reply to WAITAOF.
func (s *Store) onDisk(reply rueidis.RedisResult) error {
	n, err := reply.AsIntSlice()
	switch {
	case err != nil:
		return err
	case len(n) != 2:
		return fmt.Errorf("WAITAOF returned %v", n)
	case n[0] < 1 || n[1] < int64(s.replicas):
		return fmt.Errorf("%d of 1 primary and %d of %d replicas have the change on disk within %v", n[0], n[1], s.replicas, s.replicaTimeout)
	}
	return nil
}

// done runs a script that returns 0 if the hold is no longer that of the record.
func (s *Store) done(ctx context.Context, sc *script, p place, args ...string) (int64, error) {
	reply, err := s.run(ctx, sc, []string{p.record, p.index, p.open}, args...)
	if err != nil {
		return 0, err
	}
	return reply.AsInt64()
}

// A stored record is a value as it was read.
type stored struct {
	record.Stored
	head string
}

// read decodes the reply of a script that returns a value and the time.
func read(reply *rueidis.RedisMessage) (*stored, error) {
	if reply.IsInt64() {
		return nil, nil
	}
	parts, err := reply.ToArray()
	if err != nil {
		return nil, err
	}
	text, err := parts[0].ToString()
	if err != nil {
		return nil, err
	}
	now, err := parts[1].AsInt64()
	if err != nil {
		return nil, err
	}
	v := &stored{Stored: decode(text, now), head: text[:min(len(text), headSize)]}
	if v.As == record.StateReleased {
		return nil, nil
	}
	return v, nil
}

// isHeadless reports whether the value has no head that can be decoded: only the index knows
// when its command was created, and which command that is.
func (v *stored) isHeadless() bool { return len(v.head) < headSize || v.head[0] != headVersion }

// of returns an error if the record must not be used for the ID.
func (v *stored) of(id onlyonce.ID) error {
	if v.Fence > highestFence {
		return record.ErrFence
	}
	return value.Check(&v.Stored, id)
}

// Claim requests the right to run a command.
func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	r, err := s.claim(ctx, &c)
	return r, s.failed(ctx, "claim", c.ID, err)
}

func (s *Store) claim(ctx context.Context, c *onlyonce.Claim) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, err
	}
	if err := value.CheckOwner(c); err != nil {
		return onlyonce.Record{}, err
	}
	p, err := s.place(ctx, c.ID)
	if err != nil {
		return onlyonce.Record{}, err
	}
	lapsedKeep := value.LapsedKeep(c)
	head, rest := encodeNew(c, lapsedKeep)
	deleted := ""
	if lapsedKeep > 0 {
		deleted = deletedIn(value.Micros(c.Lease) + lapsedKeep)
	}
	for {
		reply, err := s.claims.run(ctx, []string{p.record, p.index}, head, micros(c.Lease), rest, p.name, deleted)
		if err != nil {
			return onlyonce.Record{}, err
		}
		var v *stored
		if reply.IsInt64() {
			if v, err = s.readLong(ctx, p); err == nil && v == nil {
				continue // it has gone meanwhile
			}
		} else {
			parts, failed := reply.ToArray()
			if failed != nil {
				return onlyonce.Record{}, failed
			}
			if parts[0].IsInt64() {
				fence, _ := parts[0].AsInt64()
				created, err := parts[1].AsInt64()
				s.sweepSometimes(ctx, p.partition, created)
				return record.Next(c, nil, created, fence), err
			}
			v, err = read(&reply)
		}
		if err == nil {
			err = v.of(c.ID)
		}
		if err != nil {
			return onlyonce.Record{}, err
		}
		if v.StandsAgainst(c) {
			return v.Record, nil
		}
		next := c.Next(&v.Record)
		fence, err := s.replace(ctx, p, v, &next, lapsedKeep, 0)
		if err != nil {
			return onlyonce.Record{}, err
		}
		if fence != 0 {
			next.Fence = fence
			return next, nil
		}
	}
}

// longReads is how many long values are read at a time.
const longReads = 16

// readLong reads a value that a claim has found to be long; nil: it has gone. Few are read at a
// time: the server and the client have each of them in memory, and on a connection everything
// else waits behind it.
func (s *Store) readLong(ctx context.Context, p place) (*stored, error) {
	select {
	case s.long <- struct{}{}:
		defer func() { <-s.long }()
		return s.look(ctx, p)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// replace puts another record in the place of one that was seen, unless that has
// changed since. Then the fence is 0. Of the two numbers of microseconds, lapsedKeep
// is for a record that is processing, and keep for one that is settled.
func (s *Store) replace(ctx context.Context, p place, v *stored, r *onlyonce.Record, lapsedKeep, keep int64) (fence int64, err error) {
	identity := value.Identity(r.Fingerprint, r.Summary, r.ID)
	steps := value.Steps(r.Steps)
	tail := append(append(identity, steps...), value.Outcome(&r.Result, r.Error)...)
	return s.done(ctx, replaceScript, p, v.head, string(value.Letter(r.State)), final(r.Final), r.Owner, micros(r.LeaseLeft),
		strconv.FormatInt(lapsedKeep, 10), strconv.FormatInt(keep, 10), strconv.Itoa(r.Attempt),
		strconv.Itoa(len(identity)), strconv.Itoa(len(steps)), string(tail), s.known.Load().keys.ended(p.partition), p.name)
}

func final(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// Renew makes the hold's lease end one full lease from now and adds steps to
// those of the record.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	p, err := s.place(ctx, h.ID)
	if err != nil {
		return s.failed(ctx, "renew", h.ID, err)
	}
	ok, err := s.done(ctx, renewScript, p, encodeHold(&h), micros(lease), string(value.Steps(steps)), p.name)
	return s.failed(ctx, "renew", h.ID, orLost(ok, err))
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("settle", err)
	}
	p, err := s.place(ctx, h.ID)
	if err != nil {
		return s.failed(ctx, "settle", h.ID, err)
	}
	kept, deleted := value.Keep(&st), ""
	if kept > 0 {
		deleted = deletedIn(kept)
	}
	reply, err := s.settlements.run(ctx, []string{p.record, p.index, p.open}, encodeHold(&h), string(headVersion)+string(value.Letter(st.State))+final(st.Final),
		strconv.FormatInt(kept, 10), deleted, string(value.Outcome(&st.Result, st.Error)), s.known.Load().keys.ended(p.partition), p.name)
	if err != nil {
		return s.failed(ctx, "settle", h.ID, err)
	}
	ok, err := reply.AsInt64()
	return wrap("settle", orLost(ok, err))
}

// deletedIn returns after how many milliseconds Redis deletes the key of a record
// that expires in the given number of microseconds.
func deletedIn(expires int64) string {
	return strconv.FormatInt((expires+999)/1000+record.FenceKeep.Milliseconds(), 10)
}

func orLost(ok int64, err error) error {
	if err == nil && ok == 0 {
		return onlyonce.ErrLost
	}
	return err
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	v, err := s.find(ctx, id)
	if err != nil {
		return onlyonce.Record{}, s.failed(ctx, "lookup", id, err)
	}
	r, err := v.Found()
	return r, wrap("lookup", err)
}

// find returns the stored value of an ID, whose record may have expired, or
// onlyonce.ErrNotFound.
func (s *Store) find(ctx context.Context, id onlyonce.ID) (*stored, error) {
	p, err := s.place(ctx, id)
	if err != nil {
		return nil, err
	}
	v, err := s.look(ctx, p)
	switch {
	case err != nil:
		return nil, err
	case v == nil:
		return nil, onlyonce.ErrNotFound
	}
	return v, v.of(id)
}

func (s *Store) look(ctx context.Context, p place) (*stored, error) {
	reply, err := s.run(ctx, lookScript, []string{p.record, p.index})
	if err != nil {
		return nil, err
	}
	return read(&reply)
}

// Resolve settles with st a record that no attempt holds; a zero st deletes it.
func (s *Store) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	return s.failed(ctx, "resolve", seen.ID, s.resolve(ctx, seen, st))
}

func (s *Store) resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return err
	}
	p, err := s.place(ctx, seen.ID)
	if err != nil {
		return err
	}
	for {
		v, err := s.find(ctx, seen.ID)
		if err != nil {
			return err
		}
		if err := v.Resolvable(seen, st); err != nil {
			return err
		}
		settled := value.Decided(&v.Stored, st)
		settled.Owner = record.NewOwner()
		higher, err := s.replace(ctx, p, v, &settled, 0, value.Keep(&st))
		if err != nil || higher != 0 {
			return err
		}
	}
}
