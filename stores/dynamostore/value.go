package dynamostore

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// A record is stored as one item. Its head has a fixed part and the record's identity, and
// is an attribute of its own, so that a list reads nothing large. Its rest has the steps and
// the outcome. Numbers are big-endian; instants, by the service's clock, and durations are
// in microseconds.
const (
	headVersion = '1'
	headSize    = 75
)

const (
	// longestIdentity bounds an ID with its fingerprint.
	longestIdentity = 64 << 10

	// longestRest bounds the steps and the outcome of a record.
	longestRest = 16 << 20
)

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

func (h *head) append(b []byte) []byte {
	final := byte('0')
	if h.final {
		final = '1'
	}
	b = append(append(b, headVersion, h.state, final), h.owner...)
	for _, n := range [...]int64{h.fence, h.created, h.at, h.left, h.lapsedKeep} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	for _, n := range [...]int32{h.attempt, h.identity, h.steps, h.outcome} {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// parseHead reads a head. A value that is too short for one, or of another version, is not
// ok.
func parseHead(data []byte) (h head, ok bool) {
	if len(data) < headSize || data[0] != headVersion {
		return head{}, false
	}
	h.state, h.final = data[1], data[2] == '1'
	h.owner = string(data[3 : 3+value.OwnerSize])
	at := data[3+value.OwnerSize:]
	for _, n := range [...]*int64{&h.fence, &h.created, &h.at, &h.left, &h.lapsedKeep} {
		*n, at = int64(binary.BigEndian.Uint64(at)), at[8:]
	}
	for _, n := range [...]*int32{&h.attempt, &h.identity, &h.steps, &h.outcome} {
		*n, at = int32(binary.BigEndian.Uint32(at)), at[4:]
	}
	return h, true
}

// expiry returns when the record expires; 0: never.
func (h *head) expiry() int64 {
	switch {
	case h.state == value.Processing && h.lapsedKeep > 0:
		return later(later(h.at, h.left), h.lapsedKeep)
	case h.state == value.Processing, h.state == value.Released, h.left <= 0:
		return 0
	}
	return later(h.at, h.left)
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
	return later(end, record.FenceKeep.Microseconds())/second + 1
}

// size is how many bytes the parts take.
func (h *head) size() int64 { return int64(h.identity) + int64(h.steps) + int64(h.outcome) }

// later adds a duration to an instant; either may be damaged.
func later(at, d int64) int64 {
	if d > 0 && at > math.MaxInt64-d {
		return math.MaxInt64
	}
	return at + d
}

// A stored record is what its item had, decoded at some time.
type stored struct {
	record.Stored
	head     head
	revision []byte // another one after every change
	pieces   *pieces
	identity []byte
	steps    []byte
	outcome  []byte
}

var errMissing = errors.New("a part of the record is missing: its item has no such attribute, or an item with a piece of it was deleted")

// decode makes a record of the attributes of its item. missing says that its rest could not
// be read.
func decode(data, rest []byte, missing bool, now int64) *stored {
	v := &stored{}
	h, ok := parseHead(data)
	if !ok {
		v.Stored = value.NoRecord(now)
		return v
	}
	v.head = h
	row := h.row(now)
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
		row.LeaseUntil = later(h.at, h.left)
	case value.Released:
	default:
		row.SettledAt = h.at
	}
	return row
}

// row returns what is stored, or nil for nothing.
func (v *stored) row() *record.Stored {
	if v == nil {
		return nil
	}
	return &v.Stored
}

// A change is what a call makes of a record: everything but the instants.
type change struct {
	state      byte
	final      bool
	owner      string
	fence      int64 // 0: a new one, higher than that of the record
	left       int64 // of the lease of a processing record, or of the keep of a settled one; 0: for good
	lapsedKeep int64
	attempt    int32
	anew       bool // the command begins with it
	identity   []byte
	steps      []byte
	outcome    []byte
}

// head returns the head of a change of what was seen, made at an instant.
func (c *change) head(seen *stored, now int64) head {
	h := head{
		state: c.state, final: c.final, owner: c.owner, fence: c.fence, created: now, at: now, left: c.left, lapsedKeep: c.lapsedKeep,
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
	return h
}

func (c *change) check() error {
	if n := len(c.identity); n > longestIdentity {
		return tooLarge("the ID and its fingerprint have", n, longestIdentity)
	}
	if n := len(c.steps) + len(c.outcome); n > longestRest {
		return tooLarge("the result and the steps have", n, longestRest)
	}
	return nil
}
