package etcdstore

import (
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// A record is stored under two keys: its head, which has a fixed part and the record's
// identity, and the rest, which has its steps and its outcome. So a list and a watch read
// nothing large. Instants, by the store's clock, and durations are in microseconds.
const headSize = value.FixedHead + 6*8 + 4*4

// A head is the fixed part of a record.
type head struct {
	state      byte
	final      bool
	owner      string
	fence      int64
	created    int64
	leaseUntil int64
	lapsedKeep int64 // of a processing record; 0: it does not expire
	settledAt  int64 // 0: it is not settled
	expires    int64 // of a settled record; 0: never
	attempt    int32
	identity   int32 // the lengths of the parts
	steps      int32
	outcome    int32
}

func (h *head) fields() value.Head {
	return value.Head{
		State: &h.state, Flags: []*bool{&h.final}, Owner: &h.owner,
		Longs:  []*int64{&h.fence, &h.created, &h.leaseUntil, &h.lapsedKeep, &h.settledAt, &h.expires},
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
	case h.state == value.Released:
		return 0
	case h.state != value.Processing:
		return h.expires
	case h.lapsedKeep <= 0:
		return 0
	}
	return value.Later(h.leaseUntil, h.lapsedKeep)
}

// row returns the fixed part of the record's row; the caller adds the time.
func (h *head) row() record.Row {
	return record.Row{
		State: value.StateOf(h.state), Final: h.final, Owner: h.owner, Attempt: int64(h.attempt),
		Fence: h.fence, CreatedAt: h.created, SettledAt: h.settledAt, LeaseUntil: h.leaseUntil, ExpiresAt: h.expiry(),
	}
}

// size is how many bytes the parts take.
func (h *head) size() int64 { return int64(h.identity) + int64(h.steps) + int64(h.outcome) }

// A stored record has the values of its keys, decoded at some time. Without a record, its
// revision is 0.
type stored struct {
	record.Stored
	head     head
	revision int64 // of the head's last change
	identity []byte
	steps    []byte
	outcome  []byte
}

// decode makes a record of the values of its keys, of which each may be missing. It returns
// nil for no head. A record whose head can't be read has the revision at which its key was
// created in the place of an instant, so that it has a place of its own in the list.
func decode(kv, rest *mvccpb.KeyValue, at reading) *stored {
	if kv == nil {
		return nil
	}
	v := &stored{revision: kv.ModRevision}
	h, ok := parseHead(kv.Value)
	if !ok {
		v.Stored = value.NoRecord(at.shown)
		v.head.created = kv.CreateRevision
		v.At, v.CreatedAt = v.head.created, record.Instant(v.head.created)
		return v
	}
	v.head = h
	row := h.row()
	row.Now = at.before(row.LeaseUntil, row.ExpiresAt)
	var tail []byte
	if rest != nil {
		tail = rest.Value
	}
	if h.identity < 0 || h.steps < 0 || h.outcome < 0 ||
		len(kv.Value) != headSize+int(h.identity) || len(tail) != int(h.steps)+int(h.outcome) {
		row.Err = value.ErrCut
		v.Stored = row.Record()
		return v
	}
	v.identity, v.steps, v.outcome = kv.Value[headSize:], tail[:h.steps:h.steps], tail[h.steps:]
	v.Stored = value.Decode(&row, string(v.identity), string(v.steps), string(v.outcome))
	return v
}

// row returns the stored record, or nil if there is none.
func (v *stored) row() *record.Stored {
	if v == nil {
		return nil
	}
	return &v.Stored
}

// modRevision returns the revision that the head must still have; 0: there is none.
func (v *stored) modRevision() int64 {
	if v == nil {
		return 0
	}
	return v.revision
}

// A change holds the new content of a record, except for the instants.
type change struct {
	state      byte
	final      bool
	owner      string
	fence      int64 // 0: a new one, higher than that of the record
	lease      int64 // of a processing record
	lapsedKeep int64
	keep       int64 // of a settled record; 0: for good
	attempt    int32
	anew       bool // the command begins with it
	identity   []byte
	steps      []byte
	outcome    []byte
}

// head returns the head of a change of the record that was seen, made at an instant.
func (c *change) head(seen *stored, now int64) head {
	h := head{
		state: c.state, final: c.final, owner: c.owner, fence: c.fence, created: now, lapsedKeep: c.lapsedKeep,
		attempt: c.attempt, identity: int32(len(c.identity)), steps: int32(len(c.steps)), outcome: int32(len(c.outcome)),
	}
	if seen != nil && !c.anew {
		h.created = seen.head.created
	}
	if c.fence == 0 {
		h.fence = max(now, 1)
		if seen != nil {
			h.fence = max(h.fence, seen.Fence+1)
		}
	}
	switch c.state {
	case value.Processing:
		h.leaseUntil = now + c.lease
	case value.Released:
	default:
		h.settledAt = now
		if c.keep > 0 {
			h.expires = now + c.keep
		}
	}
	return h
}

// stays returns for how long the server must keep the record; 0: for good.
func (c *change) stays() time.Duration {
	var left int64
	switch {
	case c.state == value.Released:
	case c.state == value.Processing && c.lapsedKeep > 0:
		left = c.lease + c.lapsedKeep
	case c.state == value.Processing || c.keep == 0:
		return 0
	default:
		left = c.keep
	}
	return time.Duration(min(left, value.Longest.Microseconds()))*time.Microsecond + record.FenceKeep
}

func (c *change) check() error {
	if len(c.identity) > value.LongestIdentity {
		return fmt.Errorf("%w: the ID and its fingerprint have %d bytes together, and nothing was written: use at most %d", onlyonce.ErrTooLarge, len(c.identity), value.LongestIdentity)
	}
	return nil
}
