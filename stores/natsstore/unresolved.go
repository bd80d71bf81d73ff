package natsstore

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// openCommands are the commands that run or whose outcome is unknown, as far as the stream
// was read. Only Unresolved needs them, so each call reads what has changed since the last.
type openCommands struct {
	lock    chan struct{} // has room for the one call that uses the rest
	stream  time.Time     // when the stream was created
	next    uint64        // the sequence from which the stream has not been read yet
	records map[[32]byte]openRecord
}

func newOpenCommands() *openCommands { return &openCommands{lock: make(chan struct{}, 1)} }

// An openRecord holds the fields in the header of a message about a command that has not ended
// with a known outcome.
type openRecord struct {
	message
	state            byte
	left, lapsedKeep int64 // as in its head
}

// open returns the value of the header by which a message shows that its command runs or
// that its outcome is unknown, and "" for any other.
func (h *head) open() string {
	if h.state != value.Processing && h.state != value.Unknown {
		return ""
	}
	return fmt.Sprintf("%c %d %d", h.state, h.left, h.lapsedKeep)
}

// unresolved returns for how long a record has been unresolved at the time now, less than 0
// if it is not, and whether it has expired.
func (o *openRecord) unresolved(now int64) (since int64, expired bool) {
	begin, keep := o.time, o.left
	if o.state == value.Processing {
		begin, keep = value.Later(o.time, o.left), o.lapsedKeep
	}
	return now - begin, keep > 0 && now >= value.Later(begin, keep)
}

// Unresolved counts the records whose outcome is unknown: those in the unknown state and
// those whose lease has lapsed. It also returns for how long the oldest of them has been
// unresolved. The first call of a store reads the headers of all records, and a later one
// those that have changed since.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	n, oldest, err = s.unresolved(ctx)
	return n, oldest, wrap("count unresolved records", err)
}

func (s *Store) unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	o := s.open
	select {
	case o.lock <- struct{}{}:
		defer func() { <-o.lock }()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	var info *streamInfo
	if err := s.repeat(ctx, func(ctx context.Context) (err error) { info, err = s.stream.info(ctx); return err }); err != nil {
		return 0, 0, err
	}
	if !info.Created.Equal(o.stream) || info.State.Last+1 < o.next { // it was recreated or restored
		o.stream, o.next, o.records = info.Created, 0, make(map[[32]byte]openRecord)
	}
	if err := s.follow(ctx, o.next, o.note); err != nil {
		return 0, 0, err
	}
	var clock reading
	if err := s.repeat(ctx, func(ctx context.Context) (err error) { clock, err = s.stream.clock(ctx); return err }); err != nil {
		return 0, 0, err
	}
	for hash, r := range o.records {
		since, expired := r.unresolved(clock.at(&r.message, s.skew))
		switch {
		case expired:
			delete(o.records, hash)
		case since >= 0:
			n, oldest = n+1, max(oldest, time.Duration(since)*time.Microsecond)
		}
	}
	return n, oldest, nil
}

// note notes the last message of a record.
func (o *openCommands) note(p place, h nats.Header, seq uint64, at int64) {
	o.next = max(o.next, seq+1)
	r := openRecord{message: message{seq: seq, time: at}}
	if _, err := fmt.Sscanf(h.Get(headerOpen), "%c %d %d", &r.state, &r.left, &r.lapsedKeep); err != nil {
		delete(o.records, p.hash)
		return
	}
	o.records[p.hash] = r
}
