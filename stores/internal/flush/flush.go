// Package flush delays the return of a record that a store has read until the record is
// durable. Some servers show a commit to others before it survives a fault. A commit of the
// store's own that begins later becomes durable later. Once it has returned, the record that
// was read before is therefore durable, too.
//
// That holds only if the read and the commit were on the same server, and it was not
// restarted in between. After a failover, the commit does not show that the former server's
// records survived, and that server may even continue beside the new one. If the server
// identifies itself with each read and commit, the two identities must be equal. Otherwise,
// the record is read again after the commit. If it is unchanged, it is durable on the server
// that returned it.
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
