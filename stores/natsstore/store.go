package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("natsstore: %s: %w", call, err)
}

// repeat calls try again while a record has changed meanwhile or the stream can't be reached,
// until the time of a call is over.
func (s *Store) repeat(ctx context.Context, try func(ctx context.Context) error) error {
	return optimistic.Repeat(ctx, s.timeout, try, func(err error) bool {
		var away unreachable
		return errors.Is(err, errConflict) || errors.As(err, &away)
	}, func(err error) error {
		return fmt.Errorf("the stream could not be reached within %v: %w", s.timeout, err)
	})
}

// look reads the stored record of an ID; nil: there is none.
func (s *Store) look(ctx context.Context, id onlyonce.ID, p place) (*stored, error) {
	m, now, err := s.stream.look(ctx, p.record, s.skew)
	if err != nil {
		return nil, err
	}
	if m.seq == 0 {
		return nil, s.stream.made(ctx)
	}
	v := decode(m, now)
	return v, value.Check(&v.Stored, id)
}

// find is look for a record whose outcome may be large.
func (s *Store) find(ctx context.Context, id onlyonce.ID, p place) (v *stored, err error) {
	err = s.stream.inTurn(ctx, func() error { v, err = s.look(ctx, id, p); return err })
	return v, err
}

// sequence returns that of the message, or 0 of none.
func (v *stored) sequence() uint64 {
	if v == nil {
		return 0
	}
	return v.seq
}

// row returns the stored record, or nil if there is none.
func (v *stored) row() *record.Stored {
	if v == nil {
		return nil
	}
	return &v.Stored
}

// put stores a record's next message, with a head and data that begins with it. Unless the
// command is released or starts over, it stays created when it was.
func (s *Store) put(ctx context.Context, p place, seen *stored, h head, data []byte) (uint64, error) {
	header := make(nats.Header)
	if seen != nil && !seen.Expired && h.state != value.Released {
		header[headerCreated] = []string{strconv.FormatInt(seen.At, 10)}
	}
	if text := h.open(); text != "" {
		header[headerOpen] = []string{text}
	}
	return s.stream.put(ctx, p.record, seen.sequence(), header, data, h.ttl())
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
	p := s.stream.subjects.of(c.ID)
	var seen *stored
	looked := false // most commands are new, so the first try expects nothing
	var began time.Time
	err = s.repeat(ctx, func(ctx context.Context) error {
		if looked {
			if seen, err = s.find(ctx, c.ID, p); err != nil {
				return err
			}
			if seen.row().StandsAgainst(c) {
				r = seen.Record
				if r.Owner != c.Owner || r.Attempt > 1 {
					return nil
				}
				// An earlier try has stored it, and may not have learned whether the stream has forgotten its records.
				return s.releaseForgotten(ctx, c, p, seen.seq, s.stream.made(ctx))
			}
		}
		looked, began = true, time.Now()
		seq, err := s.begin(ctx, c, p, seen)
		if err == nil {
			r, err = s.begun(ctx, c, p, seen, seq, began)
		}
		return err
	})
	return r, err
}

// begin stores the record of the attempt that a claim begins.
func (s *Store) begin(ctx context.Context, c *onlyonce.Claim, p place, seen *stored) (uint64, error) {
	h := head{
		state: value.Processing, owner: c.Owner, newFence: true,
		left: value.Micros(c.Lease), lapsedKeep: value.LapsedKeep(c),
	}
	if seen != nil {
		h.fence = seen.Fence
	}
	next := record.Next(c, seen.row(), 0, 0)
	h.attempt = int32(next.Attempt)
	var outcome []byte
	if seen != nil && !seen.Expired {
		outcome = value.Outcome(&next.Result, next.Error)
	}
	return s.put(ctx, p, seen, h, h.write(value.Identity(next.Fingerprint, next.Summary, next.ID), value.Steps(next.Steps), outcome))
}

// begun returns the record that begin has stored, with the time and so the fence that the
// stream has made it. If it is the record of a new command on a stream that has forgotten
// its records, it is released.
func (s *Store) begun(ctx context.Context, c *onlyonce.Claim, p place, seen *stored, seq uint64, began time.Time) (onlyonce.Record, error) {
	var m message
	read := func() (err error) { m, err = s.stream.get(ctx, "", seq); return err }
	var err error
	if seen == nil || seen.Expired {
		err = together(read, func() error { return s.stream.made(ctx) })
	} else {
		err = read()
	}
	switch err = s.releaseForgotten(ctx, c, p, seq, err); {
	case err != nil:
		return onlyonce.Record{}, err
	case m.seq == 0:
		return onlyonce.Record{}, errConflict // it has been replaced already
	}
	v := decode(m, m.time)
	if err := value.Check(&v.Stored, c.ID); err != nil {
		return v.Record, err
	}
	s.remember(p, v, began, c.Lease)
	return v.Record, nil
}

// releaseForgotten returns err. If that says that the stream has forgotten its records, it
// releases the claim's record of a new command, or the record's lease lapses.
func (s *Store) releaseForgotten(ctx context.Context, c *onlyonce.Claim, p place, seq uint64, err error) error {
	if errors.Is(err, ErrForgotten) {
		released := head{state: value.Released, owner: c.Owner, newFence: true, attempt: 1}
		_, _ = s.put(ctx, p, &stored{message: message{seq: seq}}, released, released.write(nil, nil, nil))
	}
	return err
}

// A leased record is one as this process has left it, until its lease ends at the latest.
type leased struct {
	*stored
	until time.Time
}

// longStay is how long a record must stay once its lease has lapsed so that this process's
// clock may tell that it has not expired.
const longStay = time.Hour

// remember keeps a record, so that its hold need not read it. Its lease began after began.
func (s *Store) remember(p place, v *stored, began time.Time, lease time.Duration) {
	if k := v.head.lapsedKeep; k == 0 || k >= longStay.Microseconds() {
		s.recent.Add(&p.hash, &leased{v, began.Add(lease)}, int64(len(v.data)))
	}
}

// recall returns the record of a hold as this process has left it, or nil. If it has changed
// since, the stream stores no message that expects it.
func (s *Store) recall(p place, h *onlyonce.Hold) *stored {
	l := s.recent.Find(&p.hash)
	if l == nil || !l.row().WritableBy(h) {
		return nil
	}
	// A suspended machine's monotonic clock stands still, and its wall clock may be set back.
	if now := time.Now(); l.head.lapsedKeep > 0 && (!now.Before(l.until) || !now.Round(0).Before(l.until.Round(0))) {
		return nil
	}
	return l.stored
}

// checkLost returns ErrLost if the hold of a call is certainly not the record's. What was seen
// may be old: a leader that is cut off from the other servers responds for some seconds
// with what it had. A fence that is higher than the hold's shows that it is lost. So does
// anything else once the stream has confirmed that it is the latest.
func (s *Store) checkLost(ctx context.Context, h *onlyonce.Hold, p place, seen *stored, sent bool) error {
	if seen == nil || seen.Fence < h.Fence {
		if err := s.stream.confirm(ctx, p.record, seen.sequence()); err != nil {
			return err
		}
	}
	return record.Lost(sent)
}

// doubtful reports whether an error leaves in doubt whether a message was stored.
func doubtful(err error) bool {
	var away unreachable
	return errors.As(err, &away) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Renew makes the hold's lease end one full lease from now and adds steps to
// those of the record.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	p := s.stream.subjects.of(h.ID)
	more, sent, guess := value.Steps(steps), false, s.recall(p, &h)
	return wrap("renew", s.repeat(ctx, func(ctx context.Context) error {
		v, err := s.held(ctx, h.ID, p, &guess)
		if err != nil {
			return err
		}
		if !v.row().WritableBy(&h) {
			return s.checkLost(ctx, &h, p, v, sent)
		}
		next := v.continued()
		next.left = value.Micros(lease)
		identity, done, outcome := v.parts()
		data, began := next.write(identity, append(done[:len(done):len(done)], more...), outcome), time.Now()
		seq, err := s.put(ctx, p, v, next, data)
		if err == nil {
			s.remember(p, v.replaced(seq, data), began, lease)
		}
		sent = sent || doubtful(err)
		return err
	}))
}

// held reads the record of a hold, unless there is a guess, which it takes from the caller.
func (s *Store) held(ctx context.Context, id onlyonce.ID, p place, guess **stored) (*stored, error) {
	if v := *guess; v != nil {
		*guess = nil
		return v, nil
	}
	return s.look(ctx, id, p)
}

// replaced returns the record as a message of its hold has left it.
func (v *stored) replaced(seq uint64, data []byte) *stored {
	next := *v
	next.seq, next.data = seq, data
	next.head, _ = parseHead(data)
	return &next
}

// continued returns the head of a message that continues the attempt of this one.
func (v *stored) continued() head {
	h := v.head
	h.newFence, h.fence = false, v.Fence
	return h
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("settle", err)
	}
	p := s.stream.subjects.of(h.ID)
	outcome, sent, guess := value.Outcome(&st.Result, st.Error), false, s.recall(p, &h)
	return wrap("settle", s.repeat(ctx, func(ctx context.Context) error {
		v, err := s.held(ctx, h.ID, p, &guess)
		if err != nil {
			return err
		}
		switch {
		case v.row().SettledBy(&h, sent), sent && st.State == "" && v.row().ReleasedBy(&h):
			return nil
		case !v.row().WritableBy(&h):
			return s.checkLost(ctx, &h, p, v, sent)
		}
		identity, steps, _ := v.parts()
		err = s.settle(ctx, p, v, v.continued(), st, identity, steps, outcome)
		sent = sent || doubtful(err)
		return err
	}))
}

// settle stores how a settlement leaves a record that was seen, with the owner and the
// fence of next.
func (s *Store) settle(ctx context.Context, p place, seen *stored, next head, st onlyonce.Settlement, identity, steps, outcome []byte) error {
	next.state, next.final, next.left = value.Settled(&st)
	next.lapsedKeep = 0
	if st.State == "" {
		identity, steps, outcome = nil, nil, nil
	}
	_, err := s.put(ctx, p, seen, next, next.write(identity, steps, outcome))
	if err == nil {
		s.recent.Remove(&p.hash)
		s.stream.publish(ctx, s.stream.subjects.ended(p.partition), []byte(p.name)) // waiters poll as well
	}
	return err
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (r onlyonce.Record, err error) {
	p := s.stream.subjects.of(id)
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
	return wrap("resolve", s.resolve(ctx, seen, st))
}

func (s *Store) resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return err
	}
	p := s.stream.subjects.of(seen.ID)
	owner, sent := record.NewOwner(), false
	return s.repeat(ctx, func(ctx context.Context) error {
		v, err := s.find(ctx, seen.ID, p)
		if err != nil {
			return err
		}
		settled, err := value.Decide(v.row(), &seen, owner, &st, sent)
		if settled == nil || err != nil {
			return err
		}
		next := v.continued()
		next.owner, next.newFence, next.attempt = owner, true, int32(settled.Attempt)
		err = s.settle(ctx, p, v, next, st, value.Identity(settled.Fingerprint, settled.Summary, settled.ID), value.Steps(settled.Steps), value.Outcome(&settled.Result, settled.Error))
		sent = sent || doubtful(err)
		return err
	})
}
