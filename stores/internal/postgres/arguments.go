package postgres

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// Encode encodes the texts among the arguments.
var Encode server.TextEncoder = func(text string) any { return Escape(text) }

// RecordArgs are the arguments of "record". A value of type any is NULL if it is nil.
type RecordArgs struct {
	Settled                         server.SettledArgs
	ID                              server.IDArgs
	SeenOwner, SeenFence, SeenState any // of the row that is there; nil: there is none
	SeenSteps                       any
	Fingerprint                     any
	Owner                           []byte
	Attempt, Fence                  int64
	Steps                           any
	CreatedAt                       int64
	Mark                            any // of the transaction; nil: none
	Token                           any // of the transaction; nil: none
}

// RecordArgsOf returns the arguments that put a record in the place of the row that its
// transaction saw.
func RecordArgsOf(seen *transact.View, k *record.Key, r *onlyonce.Record, settled server.SettledArgs, token []byte) (RecordArgs, error) {
	fingerprint, steps, err := settled.Kept(r)
	a := RecordArgs{
		Settled: settled, ID: Encode.ID(k), Fingerprint: fingerprint, Owner: []byte(r.Owner), Attempt: int64(r.Attempt), Fence: r.Fence, Steps: steps,
		CreatedAt: r.CreatedAt.UnixMicro(), Mark: Mark(seen), Token: record.NullBytes(token),
	}
	if row := seen.Row; row != nil {
		a.SeenOwner, a.SeenFence, a.SeenState, a.SeenSteps = []byte(row.Owner), row.Fence, row.As, row.StepsAs
	}
	return a, err
}

// List lists the arguments.
func (a *RecordArgs) List() []any {
	return a.Settled.List(a.ID.Hash, a.SeenOwner, a.SeenFence, a.SeenState, a.SeenSteps,
		a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Fingerprint, a.Owner, a.Attempt, a.Fence, a.Steps, a.CreatedAt, a.Mark, a.Token)
}

// Mark returns the mark of a transaction as an argument; nil: it has none.
func Mark(seen *transact.View) any {
	if seen.Mark == 0 {
		return nil
	}
	return seen.Mark
}

// Decision lists the arguments of "resolve", or of "remove" if the decision deletes the
// record.
func Decision(s server.SettledArgs, seen server.SeenArgs, owner []byte) []any {
	if s.State == "" {
		return []any{seen.Hash, seen.Owner, seen.Fence, seen.State, owner}
	}
	return s.List(seen.Hash, seen.Owner, seen.Fence, seen.State, owner, seen.UnreadableFingerprint, seen.UnreadableSteps)
}
