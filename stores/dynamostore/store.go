package dynamostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dynamostore: %s: %w", call, err)
}

// A mark remembers when the item was there that Migrate creates.
type mark struct {
	checked atomic.Int64 // the local time before it was read; 0: it must be read
	busy    atomic.Bool  // a call reads it although it was there a moment ago
}

// How old the mark may be when a new command is claimed, in microseconds. A call reads it
// earlier, so that the others need not.
const (
	markAge   = second
	markEarly = second / 2
)

// doubt makes the next claim read the mark.
func (m *mark) doubt() { m.checked.Store(0) }

// made returns ErrForgotten if the item is missing that Migrate has made, or was missing a
// second ago.
func (s *Store) made(ctx context.Context) error {
	now, checked := s.clock.local()+1, s.mark.checked.Load()
	if age := now - checked; checked != 0 && age < markAge {
		if age < markEarly || !s.mark.busy.CompareAndSwap(false, true) {
			return nil
		}
		defer s.mark.busy.Store(false)
	}
	i, err := s.get(ctx, markKey)
	switch {
	case err != nil:
		return err
	case i == nil:
		s.mark.doubt()
		return ErrForgotten
	}
	s.mark.checked.Store(now)
	return nil
}

// look reads the stored record of an ID; nil: there is none.
func (s *Store) look(ctx context.Context, id onlyonce.ID, p place) (*stored, error) {
	i, err := s.get(ctx, p.key())
	if err != nil {
		return nil, err
	}
	if i == nil {
		return nil, s.made(ctx)
	}
	v, err := s.decode(ctx, p, i)
	if err != nil {
		return nil, err
	}
	return v, value.Check(&v.Stored, id)
}

// decode makes a record of an item that was read. If a piece is missing, the record may have
// been changed since, and it is read again.
func (s *Store) decode(ctx context.Context, p place, i item) (*stored, error) {
	for {
		at, err := s.clock.read()
		if err != nil {
			return nil, err
		}
		data, rest, revision := bytesOf(i, attrHead), bytesOf(i, attrRest), bytesOf(i, attrRevision)
		var in *pieces
		whole := true
		if where := textOf(i, attrPieces); where != "" {
			if in, whole = parsePieces(where); whole {
				if rest, whole, err = s.load(ctx, p, in); err != nil {
					return nil, err
				}
			}
		}
		if !whole {
			again, err := s.get(ctx, p.key())
			if err != nil {
				return nil, err
			}
			if !bytes.Equal(bytesOf(again, attrRevision), revision) {
				if again == nil {
					return nil, errConflict
				}
				i = again
				continue
			}
		}
		v := decode(data, rest, bytesOf(i, attrLock), !whole, at.judging)
		v.revision, v.pieces, v.deleted = revision, in, numberOf(i, attrTTL)
		return v, nil
	}
}

// A writer stores the changes of one call.
type writer struct {
	*Store
	id     onlyonce.ID
	place  place
	spare  *pieces // pieces that were written, and to which no record refers
	rest   []byte  // the content of spare
	sent   bool    // an earlier change of the call may have been stored
	anew   bool    // the stored record has instants of a wrong clock
	stored *stored // the stored record, if known
	known  bool

	// In a transaction:
	with []types.TransactWriteItem // are stored together with the next change
	next []byte                    // its revision; nil: a random one
}

// split returns where the rest of a change goes: into its item, or into pieces.
func (w *writer) split(ctx context.Context, seen *stored, h *head, c *change) (inline []byte, in *pieces, err error) {
	rest := append(c.steps[:len(c.steps):len(c.steps)], c.outcome...)
	if len(c.identity)+len(rest) <= mostInline {
		return rest, nil, nil
	}
	if w.spare.covers(h) && bytes.Equal(w.rest, rest) {
		return nil, w.spare, nil
	}
	if seen != nil && seen.pieces.covers(h) && bytes.Equal(rest, append(seen.steps[:len(seen.steps):len(seen.steps)], seen.outcome...)) {
		return nil, seen.pieces, nil
	}
	w.discard(ctx, w.place, w.spare)
	w.spare, w.rest = nil, nil
	if in, err = w.store(ctx, w.place, h, rest); err != nil {
		return nil, nil, err
	}
	w.spare, w.rest = in, rest
	return nil, in, nil
}

// covers reports whether the pieces stay as long as a record with the head.
func (p *pieces) covers(h *head) bool {
	switch end := h.deletion(); {
	case p == nil:
		return false
	case end == 0:
		return p.deleted == 0
	default:
		return p.deleted >= end
	}
}

// write stores a change of the record that was seen, unless the record has changed since. It returns
// the new record, or an errConflict.
func (w *writer) write(ctx context.Context, seen *stored, c *change) (*stored, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if seen == nil {
		if err := w.made(ctx); err != nil {
			return nil, err
		}
	}
	at, err := w.clock.read()
	if err != nil {
		return nil, err
	}
	if seen != nil && !c.anew {
		if end := seen.head.expiry(); end != 0 && at.begin >= end {
			return nil, errEnding
		}
	}
	h := c.head(seen, at.begin)
	rest, in, err := w.split(ctx, seen, &h, c)
	if err != nil {
		return nil, err
	}
	v := &stored{
		head: h, revision: w.revision(), pieces: in, deleted: h.deletion(),
		identity: c.identity, steps: c.steps, outcome: c.outcome,
	}
	put := item{
		attrKey:      text(w.place.key()),
		attrHead:     binaryOf(append(h.fields().Append(make([]byte, 0, headSize+len(c.identity))), c.identity...)),
		attrRevision: binaryOf(v.revision),
	}
	if len(rest) > 0 {
		put[attrRest] = binaryOf(rest)
	}
	if h.open() {
		put[attrOpen] = text(w.place.partition())
	}
	if in != nil {
		put[attrPieces] = text(in.String())
	}
	switch {
	case c.lock != nil:
		v.lock = c.lock.begun(h.fence, h.at)
		v.lockLeft, v.deleted = time.Duration(v.lock.left)*time.Microsecond, v.lock.deletion()
	case seen != nil && seen.lock != nil && seen.lock.fence > h.fence:
		v.lock = seen.lock.ended()
	}
	if v.lock != nil {
		put[attrLock] = binaryOf(v.lock.append())
	}
	err = w.put(ctx, seen, expiring(put, v.deleted))
	switch {
	case err != nil:
		return nil, err
	case !w.clock.current(at.generation):
		return nil, errAnew
	}
	row := h.row(at.judging)
	v.Stored = value.Decode(&row, string(c.identity), string(c.steps), string(c.outcome))
	return v, nil
}

// revision returns the revision of the next change.
func (w *writer) revision() []byte {
	if w.next != nil {
		return w.next
	}
	return newToken()
}

// put stores the item of a record, unless the record has changed since it was seen.
func (w *writer) put(ctx context.Context, seen *stored, i item) error {
	when, values := condition(seen)
	if len(w.with) > 0 {
		return w.transact(ctx, &types.Put{
			TableName: &w.table, Item: i, ConditionExpression: when, ExpressionAttributeValues: values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
	}
	return w.send(ctx, func(ctx context.Context) error {
		_, err := w.client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &w.table, Item: i, ConditionExpression: when, ExpressionAttributeValues: values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return err
	})
}

// send sends a conditional write, and takes in the item that the condition was checked
// against.
func (w *writer) send(ctx context.Context, write func(ctx context.Context) error) error {
	var now item
	err := w.request(ctx, func(ctx context.Context) error {
		err := write(ctx)
		var failed *types.ConditionalCheckFailedException
		if errors.As(err, &failed) {
			now = failed.Item
		}
		return err
	})
	if !errors.Is(err, errConflict) {
		return err
	}
	return w.conflict(ctx, now)
}

// conflict takes in the item that a condition was checked against; nil: it is not known.
func (w *writer) conflict(ctx context.Context, now item) error {
	if now == nil {
		return errConflict
	}
	v, err := w.decode(ctx, w.place, now)
	if err == nil {
		err = value.Check(&v.Stored, w.id)
	}
	if err != nil {
		return err
	}
	w.stored, w.known = v, true
	return errConflict
}

// condition returns the condition that a record has not changed since it was seen.
func condition(seen *stored) (*string, item) {
	switch {
	case seen == nil:
		return aws.String("attribute_not_exists(" + attrKey + ")"), nil
	case seen.revision == nil:
		return aws.String("attribute_exists(" + attrKey + ") AND attribute_not_exists(" + attrRevision + ")"), nil
	}
	return aws.String(attrRevision + " = :seen"), item{":seen": binaryOf(seen.revision)}
}

// A decision returns the item with which a call replaces a record, or nil.
type decision func(w *writer, seen *stored) (*change, error)

// change stores what a call decides, and returns what is stored then. guess says what is
// probably stored; unless it is known, change begins by looking.
func (s *Store) change(ctx context.Context, id onlyonce.ID, p place, guess *stored, known bool, decide decision) (*stored, error) {
	return (&writer{Store: s, id: id, place: p, stored: guess, known: known}).change(ctx, decide)
}

func (w *writer) change(ctx context.Context, decide decision) (v *stored, err error) {
	err = w.repeat(ctx, func(ctx context.Context) error {
		if !w.known {
			if w.stored, err = w.look(ctx, w.id, w.place); err != nil {
				return err
			}
		}
		seen := w.stored
		w.known = false
		c, err := decide(w, seen)
		if err != nil || c == nil {
			v = seen
			return err
		}
		if c.only {
			v, err = w.relock(ctx, seen, c)
		} else {
			v, err = w.write(ctx, seen, c)
		}
		w.sent, w.anew = w.sent || doubtful(err), w.anew || errors.Is(err, errAnew)
		if err == nil && seen != nil && seen.pieces != nil && (v.pieces == nil || v.pieces.id != seen.pieces.id) {
			w.discard(ctx, w.place, seen.pieces)
		}
		return err
	})
	if w.spare != nil && !w.sent && (err != nil || v == nil || v.pieces == nil || v.pieces.id != w.spare.id) {
		w.discard(ctx, w.place, w.spare)
		w.spare, w.rest = nil, nil
	}
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
	p := placeOf(c.ID)
	locked := false
	// Most commands are new, so the first try expects nothing.
	v, err := s.change(ctx, c.ID, p, nil, !s.seenCache.Has(&p.hash), func(w *writer, seen *stored) (*change, error) {
		locked = false
		if seen.row().StandsAgainst(c) {
			if !w.anew || seen.As != string(onlyonce.StateProcessing) || seen.Owner != c.Owner {
				return nil, nil
			}
			again := seen.continued()
			again.fence, again.left = 0, value.Micros(c.Lease)
			return again, nil
		}
		if locked = seen.locked(); locked {
			return nil, nil
		}
		next := record.Next(c, seen.row(), 0, 0)
		begin := &change{
			state: value.Processing, owner: c.Owner, left: value.Micros(c.Lease), lapsedKeep: value.LapsedKeep(c),
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
	switch {
	case locked:
		return v.running(c.ID), nil
	case v.Owner == c.Owner:
		s.recent.Add(&p.hash, v, v.head.size())
	}
	return v.Record, nil
}

// continued returns a change that continues the attempt of the record.
func (v *stored) continued() *change {
	return &change{
		state: v.head.state, final: v.head.final, owner: v.head.owner, fence: v.Fence, left: v.head.left, lapsedKeep: v.head.lapsedKeep,
		attempt: v.head.attempt, identity: v.identity, steps: v.steps, outcome: v.outcome,
	}
}

// Renew makes the hold's lease end one full lease from now and adds steps to
// those of the record.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	p := placeOf(h.ID)
	more := value.Steps(steps)
	guess := s.guess(&p, &h)
	v, err := s.change(ctx, h.ID, p, guess, guess != nil, func(w *writer, seen *stored) (*change, error) {
		if !seen.row().WritableBy(&h) {
			return nil, record.Lost(w.sent)
		}
		if seen.Damage != nil {
			return nil, seen.Damage
		}
		next := seen.continued()
		next.left = value.Micros(lease)
		if !w.anew {
			next.steps = append(next.steps[:len(next.steps):len(next.steps)], more...)
		}
		return next, nil
	})
	if err == nil {
		s.recent.Add(&p.hash, v, v.head.size())
	}
	return wrap("renew", err)
}

// guess returns the record of a hold as this process has left it, or nil.
func (s *Store) guess(p *place, h *onlyonce.Hold) *stored {
	if v := s.recent.Find(&p.hash); v.row().WritableBy(h) {
		return v
	}
	return nil
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("settle", err)
	}
	p := placeOf(h.ID)
	outcome := value.Outcome(&st.Result, st.Error)
	guess := s.guess(&p, &h)
	_, err := s.change(ctx, h.ID, p, guess, guess != nil, func(w *writer, seen *stored) (*change, error) {
		settled := seen.row().SettledBy(&h, w.sent && !w.anew) || w.sent && st.State == "" && seen.row().ReleasedBy(&h)
		switch {
		case settled && !w.anew:
			return nil, nil
		case !settled && !seen.row().WritableBy(&h):
			return nil, record.Lost(w.sent)
		}
		return seen.continued().settled(&st, outcome), nil
	})
	if err == nil {
		s.recent.Remove(&p.hash)
	}
	return wrap("settle", err)
}

// settled returns how a settlement ends the attempt that c continues.
func (c *change) settled(st *onlyonce.Settlement, outcome []byte) *change {
	c.state, c.final, c.left = value.Settled(st)
	c.lapsedKeep, c.outcome = 0, outcome
	if st.State == "" {
		c.identity, c.steps, c.outcome = nil, nil, nil
	}
	return c
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (r onlyonce.Record, err error) {
	p := placeOf(id)
	err = s.repeat(ctx, func(ctx context.Context) error {
		v, err := s.look(ctx, id, p)
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
	p := placeOf(seen.ID)
	owner := record.NewOwner()
	_, err := s.change(ctx, seen.ID, p, nil, false, func(w *writer, v *stored) (*change, error) {
		settled, err := value.Decide(v.row(), &seen, owner, &st, w.sent)
		if settled == nil || err != nil {
			return nil, err
		}
		next := v.continued()
		next.owner, next.fence, next.attempt = owner, 0, int32(settled.Attempt)
		next.identity, next.steps = value.Identity(settled.Fingerprint, settled.Summary, settled.ID), value.Steps(settled.Steps)
		return next.settled(&st, value.Outcome(&settled.Result, settled.Error)), nil
	})
	return wrap("resolve", err)
}
