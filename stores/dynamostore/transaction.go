package dynamostore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// The operations that errors of RunTx and SettleTx name.
const (
	runningTx  = "dynamostore: run in a transaction"
	settlingTx = "dynamostore: settle in a transaction"
)

// errOvertaken says that a transaction was not committed, because its record has changed.
var errOvertaken = errors.New("another attempt has changed the record while the function ran: nothing was written")

// RunTx claims, runs and settles. It first locks the record for the length of the claim's
// lease. Then fn adds items to tx, which are written together with the settlement, or not at
// all, once fn has returned without an error. Meanwhile, nobody sees the attempt, except for
// claims, which are not granted. If the process dies, or does not reach DynamoDB after fn has
// failed, the lock ends with its lease, and the record is what it was before. fn runs again, up to twenty times in all, if another attempt
// has changed the record in the meantime. A fence that fn has seen is never issued again.
func (s *Store) RunTx(ctx context.Context, c onlyonce.Claim, fn func(ctx context.Context, tx *Tx, r onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	r, own, err := s.runTx(ctx, &c, fn)
	if err != nil && own == nil {
		r = onlyonce.Record{}
	}
	return r, transact.Result(runningTx, own, err)
}

func (s *Store) runTx(ctx context.Context, c *onlyonce.Claim, fn transact.Func[*Tx]) (r onlyonce.Record, own, err error) {
	if err := c.Check(); err != nil {
		return r, nil, err
	}
	if err := value.CheckOwner(c); err != nil {
		return r, nil, err
	}
	for n := 1; ; n++ {
		began := time.Now()
		r, own, err = s.runOnce(ctx, c, fn)
		switch {
		case errors.Is(err, errOvertaken) && own != nil:
			return r, own, onlyonce.ErrLost
		case !errors.Is(err, errOvertaken):
			return r, own, err
		case n == transact.MaxRuns:
			return r, nil, fmt.Errorf("%w: %w", onlyonce.ErrUnavailable, err)
		case !transact.Pause(ctx, transact.AfterRun(n, time.Since(began))):
			return r, nil, errors.Join(ctx.Err(), err)
		}
	}
}

// runOnce runs the function once, if the command can be locked.
func (s *Store) runOnce(ctx context.Context, c *onlyonce.Claim, fn transact.Func[*Tx]) (r onlyonce.Record, own, err error) {
	p := placeOf(c.ID)
	l := &lock{token: string(newToken()), left: value.Micros(c.Lease), fingerprint: c.Fingerprint}
	locked, err := s.lock(ctx, c, p, l)
	switch {
	case err != nil:
		return r, nil, err
	case !locked.has(l.token) && locked.row().StandsAgainst(c):
		return locked.Record, nil, nil
	case !locked.has(l.token):
		return locked.running(c.ID), nil, nil
	}
	r = record.Next(c, locked.row(), locked.lock.at, locked.lock.fence)
	created := locked.head.created
	if locked.Expired {
		created = locked.lock.at
	}
	t := &transaction{
		writer: &writer{Store: s, id: c.ID, place: p, stored: locked, known: true},
		mine:   func(seen *stored) bool { return seen.has(l.token) },
		hold:   onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence},
		undo:   &change{only: true, lock: locked.lock.ended()},
		begin: func(*stored) *change {
			return &change{
				owner: c.Owner, fence: r.Fence, attempt: int32(r.Attempt), anew: true, created: created,
				identity: value.Identity(r.Fingerprint, r.Summary, r.ID), steps: value.Steps(r.Steps),
			}
		},
	}
	return t.run(ctx, r, func(ctx context.Context, tx *Tx) (onlyonce.Settlement, error) { return fn(ctx, tx, r) })
}

func newToken() []byte {
	token := make([]byte, value.OwnerSize)
	rand.Read(token)
	return token
}

// lock locks the record for a transaction, and returns it with the lock, or else as it stands
// against the claim.
func (s *Store) lock(ctx context.Context, c *onlyonce.Claim, p place, l *lock) (*stored, error) {
	// Most commands are new, so the first try expects nothing.
	v, err := s.change(ctx, c.ID, p, nil, !s.seenCache.Has(&p.hash), func(w *writer, seen *stored) (*change, error) {
		switch {
		case seen.row().StandsAgainst(c), seen.has(l.token) && !w.anew, seen.locked() && !seen.has(l.token):
			return nil, nil
		case seen == nil || seen.Expired:
			return &change{state: value.Released, owner: l.token, attempt: 1, anew: true, lock: l}, nil
		}
		return &change{only: true, lock: l}, nil
	})
	if err == nil {
		s.seenCache.Add(&p.hash)
	}
	return v, err
}

// SettleTx runs fn and settles an existing claim. The items that fn adds to tx are written
// together with the settlement, or not at all.
func (s *Store) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(ctx context.Context, tx *Tx) (onlyonce.Settlement, error)) error {
	own, err := s.settleTx(ctx, h, fn)
	if errors.Is(err, errOvertaken) {
		err = onlyonce.ErrLost
	}
	return transact.Result(settlingTx, own, err)
}

func (s *Store) settleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, *Tx) (onlyonce.Settlement, error)) (own, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p := placeOf(h.ID)
	held := s.guess(&p, &h)
	if held == nil {
		if err := s.repeat(ctx, func(ctx context.Context) (err error) { held, err = s.look(ctx, h.ID, p); return err }); err != nil {
			return nil, err
		}
		if !held.row().WritableBy(&h) {
			return nil, onlyonce.ErrLost
		}
	}
	t := &transaction{
		writer: &writer{Store: s, id: h.ID, place: p, stored: held, known: true},
		mine:   func(seen *stored) bool { return seen.row().WritableBy(&h) },
		hold:   h,
		begin:  func(seen *stored) *change { return seen.continued() },
	}
	_, own, err = t.run(ctx, onlyonce.Record{}, fn)
	if err == nil {
		s.recent.Remove(&p.hash)
	}
	return own, err
}

// A transaction settles a command together with the items of its function.
type transaction struct {
	*writer
	mine  func(seen *stored) bool    // reports whether the attempt still has the command
	hold  onlyonce.Hold              // of the attempt
	begin func(seen *stored) *change // continues the attempt
	undo  *change                    // leaves the record as it was before; nil: it is so already

	token      []byte // the revision of the record with which the items are stored; nil: nothing was sent
	settlement onlyonce.Settlement
	outcome    []byte
	items      []types.TransactWriteItem
	committed  bool
	result     *stored // the record as it was found committed
}

// run calls the function and records how it ended. own is the function's error. The end of
// ctx does not end the calls after the function.
func (t *transaction) run(ctx context.Context, r onlyonce.Record, fn func(context.Context, *Tx) (onlyonce.Settlement, error)) (_ onlyonce.Record, own, err error) {
	after := context.WithoutCancel(ctx)
	returned := false
	defer func() {
		if !returned { // it panics
			_ = t.rollBack(after) // otherwise, the lock ends with its lease
		}
	}()
	tx := &Tx{table: t.table}
	st, own := fn(ctx, tx)
	returned = true
	t.items = tx.end()
	t.settlement, own = transact.Check(t.doing(), st, own)
	t.outcome = value.Outcome(&t.settlement.Result, t.settlement.Error)
	switch {
	case own != nil && t.settlement.State == "":
		_ = t.rollBack(after)
		return r, own, nil
	case own != nil:
		t.items = nil
	}
	v, err := t.commit(after)
	if err == nil && t.settlement.State != "" && v != nil {
		r = v.Record
	}
	return r, own, err
}

func (t *transaction) doing() string {
	if t.undo == nil {
		return settlingTx
	}
	return runningTx
}

// commit stores the items and the settlement, or finds out that nothing of it is stored. If
// it can't, the error is onlyonce.ErrInDoubt.
func (t *transaction) commit(ctx context.Context) (v *stored, err error) {
	t.token = newToken()
	v, err = t.change(ctx, func(_ *writer, seen *stored) (*change, error) {
		t.find(seen)
		switch {
		case t.committed && (!t.anew || !seen.row().SettledBy(&t.hold, true)):
			return nil, nil // others may have changed it since
		case t.committed:
			t.with, t.next = nil, nil
			return seen.continued().settled(&t.settlement, t.outcome), nil // by the right clock
		case !t.mine(seen) && t.sent:
			return nil, record.ErrRepeated
		case !t.mine(seen):
			return nil, errOvertaken
		}
		t.with, t.next = t.items, t.token
		return t.begin(seen).settled(&t.settlement, t.outcome), nil
	})
	doubt := t.sent
	switch {
	case err == nil && !t.committed:
		return v, nil
	case t.committed:
		return t.result, nil
	case !doubt && (errors.Is(err, errOvertaken) || t.undo == nil):
		return nil, err
	}
	// A request that is still on its way can take effect only while the record is as it was.
	var undone error
	if !errors.Is(err, record.ErrRepeated) {
		undone = t.rollBack(ctx)
	}
	switch {
	case t.committed:
		return t.result, nil
	case errors.Is(err, record.ErrRepeated), doubt && undone != nil:
		return nil, fmt.Errorf("%w: %w", onlyonce.ErrInDoubt, errors.Join(err, undone))
	}
	t.discard(ctx, t.place, t.spare)
	return nil, err
}

// find notes whether the record is the one that the transaction has stored with its items.
func (t *transaction) find(seen *stored) {
	if t.token != nil && seen != nil && bytes.Equal(seen.revision, t.token) {
		t.committed, t.result = true, seen
	}
}

// rollBack makes sure that nothing of the transaction can be stored any more, and leaves the
// record as it was before. It returns an error if it is not known whether anything was.
func (t *transaction) rollBack(ctx context.Context) error {
	if t.undo == nil && t.token == nil {
		return nil // nothing was sent
	}
	w := &writer{Store: t.Store, id: t.id, place: t.place, stored: t.stored, known: t.stored != nil}
	_, err := w.change(ctx, func(_ *writer, seen *stored) (*change, error) {
		t.find(seen)
		switch {
		case t.committed, t.undo != nil && seen.releasedBy(t.undo.lock.token):
			return nil, nil
		case !t.mine(seen):
			return nil, record.ErrRepeated
		case t.undo == nil:
			return &change{only: true}, nil
		}
		return t.undo, nil
	})
	return err
}

// relock changes only the lock of a record, or only its revision.
func (w *writer) relock(ctx context.Context, seen *stored, c *change) (*stored, error) {
	at, err := w.clock.read()
	if err != nil {
		return nil, err
	}
	v := *seen
	v.revision = newToken()
	if c.lock != nil && c.lock.left > 0 {
		if end := seen.head.expiry(); end != 0 && at.begin >= end {
			return nil, errEnding
		}
		v.lock = c.lock.begun(max(at.begin, seen.highest()+1), at.begin)
	} else if c.lock != nil {
		v.lock = c.lock
	}
	set, names, values := "SET revision = :revision", map[string]string(nil), item{":revision": binaryOf(v.revision)}
	if c.lock != nil {
		set, names = set+", #lock = :lock", map[string]string{"#lock": attrLock}
		values[":lock"] = binaryOf(v.lock.append())
		v.lockLeft = time.Duration(v.lock.left) * time.Microsecond
		if seen.deleted > 0 && v.lock.deletion() > seen.deleted {
			v.deleted = v.lock.deletion()
			set, names["#ttl"] = set+", #ttl = :ttl", attrTTL
			values[":ttl"] = number(v.deleted)
		}
	}
	when, seenValues := condition(seen)
	for name, v := range seenValues {
		values[name] = v
	}
	err = w.send(ctx, func(ctx context.Context) error {
		_, err := w.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &w.table, Key: keyOf(w.place.key()), UpdateExpression: &set, ConditionExpression: when,
			ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !w.clock.current(at.generation):
		return nil, errAnew
	}
	return &v, nil
}

// transact stores the record together with the items.
func (w *writer) transact(ctx context.Context, p *types.Put) error {
	var sent error
	err := w.request(ctx, func(ctx context.Context) error {
		_, err := w.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: append(slices.Clone(w.with), types.TransactWriteItem{Put: p}),
		})
		sent = err
		return err
	})
	var reasons *types.TransactionCanceledException
	switch {
	case errors.As(err, &reasons):
		return w.canceled(ctx, err, reasons.CancellationReasons)
	case errors.Is(err, ErrForgotten): // unless it is the table of an item that is missing
		if err := w.made(ctx); err != nil {
			return err
		}
		return rejected{sent}
	}
	return err
}
