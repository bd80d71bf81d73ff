package dynamostore

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// A record is stored as one item. Its head has a fixed part and the record's identity, and
// is an attribute of its own, so that a list reads nothing large. Its rest has the steps and
// the outcome. Instants, by the service's clock, and durations are in microseconds.
const headSize = value.FixedHead + 5*8 + 4*4

// longestRest bounds the steps and the outcome of a record.
const longestRest = 16 << 20

// A head is the fixed part of a record.
type head struct {
	state      byte
	final      bool
	owner      string
	fence      int64
	created    int64
	at         int64 // when the lease began, or the record was settled
	left       int64 // of the lease, or until a settled record expires; 0: never
	lapsedKeep int64 // of a processing record; 0: it does not expire
	attempt    int32
	identity   int32 // the lengths of the parts
	steps      int32
	outcome    int32
}

func (h *head) fields() value.Head {
	return value.Head{
		State: &h.state, Flags: []*bool{&h.final}, Owner: &h.owner,
		Longs:  []*int64{&h.fence, &h.created, &h.at, &h.left, &h.lapsedKeep},
		Shorts: []*int32{&h.attempt, &h.identity, &h.steps, &h.outcome},
	}
}

// parseHead reads a head. A value that is too short for one, or of another version, is not
// ok.
func parseHead(data []byte) (h head, ok bool) {
	ok = h.fields().Parse(data)
	return h, ok
}

// expiry returns when the record expires; 0: never.
func (h *head) expiry() int64 {
	switch {
	case h.state == value.Processing && h.lapsedKeep > 0:
		return value.Later(value.Later(h.at, h.left), h.lapsedKeep)
	case h.state == value.Processing, h.state == value.Released, h.left <= 0:
		return 0
	}
	return value.Later(h.at, h.left)
}

// deletion returns the second after which DynamoDB may delete the record; 0: never.
func (h *head) deletion() int64 {
	end := h.expiry()
	switch {
	case h.state == value.Released:
		end = h.at
	case end == 0:
		return 0
	}
	return value.Later(end, record.FenceKeep.Microseconds())/second + 1
}

// size is how many bytes the parts take.
func (h *head) size() int64 { return int64(h.identity) + int64(h.steps) + int64(h.outcome) }

// A stored record has the values of its item, decoded at some time.
type stored struct {
	record.Stored
	head     head
	revision []byte // another one after every change
	pieces   *pieces
	deleted  int64         // the second after which DynamoDB may delete the item; 0: never
	lock     *lock         // of the transaction that locked the record last; nil: none did since its fence
	lockLeft time.Duration // how long the lock lasts
	identity []byte
	steps    []byte
	outcome  []byte
}

// A lock says that a transaction runs the command of a record. Below it, the record stays as
// it was. Only the transaction's own settlement, and claims, observe it: whatever else changes
// the record takes the lock away, and with it the revision that the settlement requires.
type lock struct {
	token       string // of the transaction
	fence       int64  // that its function has seen; no other attempt gets it
	at          int64  // when the lock began
	left        int64  // how long it lasts; 0: it has ended
	fingerprint []byte
}

// lockSize is the number of bytes of a lock before its fingerprint, which is absent or follows one byte.
const lockSize = value.OwnerSize + 3*8

func (l *lock) append() []byte {
	b := []byte(l.token)
	for _, n := range [...]int64{l.fence, l.at, l.left} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if l.fingerprint != nil {
		b = append(append(b, '1'), l.fingerprint...)
	}
	return b
}

// parseLock parses a lock; nil: there is none. It is not ok if the lock is truncated.
func parseLock(b []byte) (l *lock, ok bool) {
	if b == nil {
		return nil, true
	}
	if len(b) < lockSize {
		return nil, false
	}
	l = &lock{token: string(b[:value.OwnerSize])}
	at := b[value.OwnerSize:]
	for _, n := range [...]*int64{&l.fence, &l.at, &l.left} {
		*n, at = int64(binary.BigEndian.Uint64(at)), at[8:]
	}
	if len(at) > 0 {
		l.fingerprint = at[1:]
	}
	if l.left < 0 || l.fence < 1 || l.fence > record.MaxFence {
		return nil, false
	}
	return l, true
}

func (l *lock) end() int64 { return value.Later(l.at, l.left) }

// begun returns the lock as a transaction takes it.
func (l *lock) begun(fence, at int64) *lock {
	return &lock{token: l.token, fence: fence, at: at, left: l.left, fingerprint: l.fingerprint}
}

// ended returns the lock as it is once its transaction has ended without a settlement. What
// is left of it is its fence.
func (l *lock) ended() *lock { return &lock{token: l.token, fence: l.fence, at: l.at} }

// deletion returns the second after which DynamoDB may delete a lock.
func (l *lock) deletion() int64 {
	return value.Later(l.end(), record.FenceKeep.Microseconds())/second + 1
}

// has reports whether a transaction has the lock of the record, whose lease may have lapsed.
func (v *stored) has(token string) bool {
	return v != nil && v.lock != nil && v.lock.left > 0 && v.lock.token == token
}

// releasedBy reports whether a transaction had the lock of the record last, and has given it back.
func (v *stored) releasedBy(token string) bool {
	return v != nil && v.lock != nil && v.lock.left == 0 && v.lock.token == token
}

// locked reports whether a transaction runs the command.
func (v *stored) locked() bool { return v != nil && v.lockLeft > 0 }

// running returns the record of a command that a transaction runs. It has no owner, because
// nobody can settle it.
func (v *stored) running(id onlyonce.ID) onlyonce.Record {
	r := onlyonce.Record{
		ID: id, State: onlyonce.StateProcessing, Fingerprint: v.lock.fingerprint, Attempt: 1, Fence: v.lock.fence,
		CreatedAt: record.Instant(v.lock.at), LeaseLeft: min(v.lockLeft, transact.RetryAfter),
	}
	if !v.Expired {
		r.Attempt, r.CreatedAt = v.Attempt+1, v.CreatedAt
	}
	return r
}

// highest returns the highest fence that an attempt has got; 0: none is known.
func (v *stored) highest() int64 {
	switch {
	case v == nil:
		return 0
	case v.lock == nil:
		return v.Fence
	}
	return max(v.Fence, v.lock.fence)
}

var errLock = errors.New("the lock of a transaction is cut off")

var errMissing = errors.New("a part of the record is missing: its item has no such attribute, or an item with a piece of it was deleted")

// decode makes a record of the attributes of its item. missing says that its rest could not
// be read.
func decode(data, rest, locked []byte, missing bool, now int64) *stored {
	v := &stored{}
	l, whole := parseLock(locked)
	v.lock = l
	if l != nil && l.left > 0 {
		v.lockLeft = record.Between(max(now, l.at), l.end())
	}
	h, ok := parseHead(data)
	if !ok {
		v.Stored = value.NoRecord(now)
		return v
	}
	v.head = h
	row := h.row(now)
	if !whole {
		row.Err = errLock
		v.Stored = row.Record()
		return v
	}
	if h.identity < 0 || h.steps < 0 || h.outcome < 0 ||
		len(data) != headSize+int(h.identity) || !missing && len(rest) != int(h.steps)+int(h.outcome) {
		row.Err = value.ErrCut
		v.Stored = row.Record()
		return v
	}
	v.identity = data[headSize:]
	if missing {
		row.Err = errMissing
	} else {
		v.steps, v.outcome = rest[:h.steps:h.steps], rest[h.steps:]
	}
	v.Stored = value.Decode(&row, string(v.identity), string(v.steps), string(v.outcome))
	return v
}

// row returns the columns of the head at a time. Nothing has more time left than it began
// with.
func (h *head) row(now int64) record.Row {
	row := record.Row{
		State: value.StateOf(h.state), Final: h.final, Owner: h.owner, Attempt: int64(h.attempt),
		Fence: h.fence, CreatedAt: h.created, ExpiresAt: h.expiry(), Now: max(now, h.at),
	}
	switch h.state {
	case value.Processing:
		row.LeaseUntil = value.Later(h.at, h.left)
	case value.Released:
	default:
		row.SettledAt = h.at
	}
	return row
}

// row returns the stored record, or nil if there is none.
func (v *stored) row() *record.Stored {
	if v == nil {
		return nil
	}
	return &v.Stored
}

// A change holds the new content of a record, except for the instants.
type change struct {
	state      byte
	final      bool
	owner      string
	fence      int64 // 0: a new one, higher than that of the record
	left       int64 // of the lease of a processing record, or of the keep of a settled one; 0: for good
	lapsedKeep int64
	attempt    int32
	created    int64 // 0: when the command began
	anew       bool  // the command begins with it
	only       bool  // it changes the lock, and leaves the record as it is
	lock       *lock // of a transaction; one that begins has no fence and no instant yet
	identity   []byte
	steps      []byte
	outcome    []byte
}

// head returns the head of a change of the record that was seen, made at an instant.
func (c *change) head(seen *stored, now int64) head {
	h := head{
		state: c.state, final: c.final, owner: c.owner, fence: c.fence, created: now, at: now, left: c.left, lapsedKeep: c.lapsedKeep,
		attempt: c.attempt, identity: int32(len(c.identity)), steps: int32(len(c.steps)), outcome: int32(len(c.outcome)),
	}
	if seen != nil && !c.anew {
		h.created = seen.head.created
	}
	if c.created != 0 {
		h.created = c.created
	}
	if c.fence == 0 {
		h.fence = max(now, 1)
		h.fence = max(h.fence, seen.highest()+1)
	}
	return h
}

func (c *change) check() error {
	if n := len(c.identity); n > value.LongestIdentity {
		return tooLarge("the ID and its fingerprint have", n, value.LongestIdentity)
	}
	if n := len(c.steps) + len(c.outcome); n > longestRest {
		return tooLarge("the result and the steps have", n, longestRest)
	}
	return nil
}
