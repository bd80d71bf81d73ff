package natsstore

import (
	"math"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// A record is stored as one message: a head of fixed size, and then its identity, its
// steps and its outcome. Instants and durations are in microseconds. A message has no instant of its writer's clock: its durations are counted
// from the time that the stream gives it.
const headSize = value.FixedHead + 3*8 + 3*4

// A head is the beginning of a message.
type head struct {
	state      byte
	final      bool
	owner      string
	newFence   bool  // the message makes a fence, higher than fence and than the message's time
	fence      int64 // of the record; with newFence, of the one before
	left       int64 // of the lease of a processing record, or until a settled one expires; 0: never
	lapsedKeep int64 // of a processing record; 0: it does not expire
	attempt    int32
	identity   int32 // the lengths of the parts
	steps      int32
}

func (h *head) fields() value.Head {
	return value.Head{
		State: &h.state, Flags: []*bool{&h.final, &h.newFence}, Owner: &h.owner,
		Longs:  []*int64{&h.fence, &h.left, &h.lapsedKeep},
		Shorts: []*int32{&h.attempt, &h.identity, &h.steps},
	}
}

// parseHead reads a head. A message that is too short for one, or of another version, is not ok.
func parseHead(data []byte) (h head, ok bool) {
	ok = h.fields().Parse(data)
	return h, ok
}

// ttl returns for how long the stream keeps the message; 0: for good.
func (h *head) ttl() time.Duration {
	expires, more := max(h.left, 0), int64(0)
	switch {
	case h.state == value.Released:
	case h.state == value.Processing && h.lapsedKeep > 0:
		more = min(h.lapsedKeep, value.Longest.Microseconds())
	case h.state == value.Processing || h.left == 0:
		return 0
	}
	// In whole seconds, and longer rather than shorter.
	return (time.Duration(expires+more)*time.Microsecond + record.FenceKeep).Truncate(time.Second) + time.Second
}

// A message is the last one of a record's subject, as it was read.
type message struct {
	seq     uint64
	time    int64 // given by the stream
	created int64 // when the command was created, as the message's header has it
	marker  bool  // the server has put it in the place of an expired one
	data    []byte
}

// A stored record is a message, decoded at some time.
type stored struct {
	record.Stored
	message
	head head
}

// decode makes a record of a message that was read at the time now.
func decode(m message, now int64) *stored {
	v := &stored{message: m}
	if m.marker {
		v.As, v.Expired = record.StateReleased, true
		return v
	}
	h, ok := parseHead(m.data)
	if !ok {
		v.Stored = value.NoRecord(now)
		v.At, v.CreatedAt = m.created, record.Instant(m.created)
		return v
	}
	v.head = h
	row := record.Row{
		State: value.StateOf(h.state), Final: h.final, Owner: h.owner, Now: now,
		Fence: h.fence, CreatedAt: m.created, Attempt: int64(h.attempt),
	}
	if h.newFence && h.fence < math.MaxInt64 {
		row.Fence = max(m.time, h.fence+1)
	}
	switch {
	case h.state == value.Processing:
		row.LeaseUntil = value.Later(m.time, h.left)
		if h.lapsedKeep > 0 {
			row.ExpiresAt = value.Later(row.LeaseUntil, h.lapsedKeep)
		}
	case h.state != value.Released:
		row.SettledAt = m.time
		if h.left > 0 {
			row.ExpiresAt = value.Later(m.time, h.left)
		}
	}
	rest := m.data[headSize:]
	if h.identity < 0 || h.steps < 0 || int64(len(rest)) < int64(h.identity)+int64(h.steps) {
		row.Err = value.ErrCut
		v.Stored = row.Record()
		return v
	}
	identity, steps, outcome := v.parts()
	v.Stored = value.Decode(&row, string(identity), string(steps), string(outcome))
	return v
}

// parts returns the bytes after the head, or nothing if the message is cut off.
func (v *stored) parts() (identity, steps, outcome []byte) {
	rest := v.data[min(headSize, len(v.data)):]
	i, s := int64(v.head.identity), int64(v.head.steps)
	if i < 0 || s < 0 || i+s > int64(len(rest)) {
		return nil, nil, nil
	}
	return rest[:i], rest[i : i+s], rest[i+s:]
}

// write returns the message of a head and the parts that follow it.
func (h head) write(identity, steps, outcome []byte) []byte {
	h.identity, h.steps = int32(len(identity)), int32(len(steps))
	b := make([]byte, 0, headSize+len(identity)+len(steps)+len(outcome))
	return append(append(append(h.fields().Append(b), identity...), steps...), outcome...)
}
