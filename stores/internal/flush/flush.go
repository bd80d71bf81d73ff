// Package flush delays what a store has read until it is durable. Some servers show a
// commit to others before it survives a fault. A commit of the store's own that begins later
// becomes durable later, so once it has returned, what was read before is durable, too.
//
// That holds only if both were on the same server, and it was not started anew in between: after
// a failover, the commit says nothing of what the former server had, which may even go on beside
// the new one. If the server tells which one it is, with a read and with a commit, the two must
// be the same. Otherwise, what was read is read again after the commit: if it is still the same,
// the server that has it has it for good.
package flush

import (
	"context"
	"encoding/binary"

	"github.com/onlyonce-go/onlyonce/stores/internal/coalesce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A Flusher commits on behalf of callers that have read a settled record. Concurrent
// callers share one commit.
type Flusher struct {
	known   record.SeenCache // settled records for which no commit is needed
	commits coalesce.Requests[int64]
}

// Knows reports whether the settlement is known to survive.
func (f *Flusher) Knows(k *record.Key, fence int64) bool {
	mark := settlement(k, fence)
	return f.known.Has(&mark)
}

// Note notes a settlement that survives.
func (f *Flusher) Note(k *record.Key, fence int64) {
	mark := settlement(k, fence)
	f.known.Add(&mark)
}

// settlement names one settlement of a record: a fence is settled once.
func settlement(k *record.Key, fence int64) [32]byte {
	mark := k.Hash
	binary.LittleEndian.PutUint64(mark[2:], binary.LittleEndian.Uint64(mark[2:])^uint64(fence)) // any 64 bits will do
	return mark
}

// Wait returns once a commit that began after the call has returned, and the server that
// committed, if that tells. Others wait for the commit, too, so it must not end with one
// caller's context.
func (f *Flusher) Wait(ctx context.Context, commit func() (server int64, err error)) (server int64, err error) {
	return f.commits.Do(ctx, commit)
}
