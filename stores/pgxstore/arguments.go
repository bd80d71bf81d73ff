package pgxstore

import (
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// endArgs are the arguments of "settle or fail" and "release or fail" besides what a
// settled record holds.
type endArgs struct {
	token []byte
	hold  server.HoldArgs
	mark  any // of the transaction; nil: none
}

// settle lists the arguments of "settle or fail".
func (a *endArgs) settle(s server.SettledArgs) []any {
	return s.List(a.token, a.hold.Hash, a.hold.Owner, a.hold.Fence, a.mark)
}

// release lists the arguments of "release or fail".
func (a *endArgs) release() []any {
	return []any{a.token, a.hold.Hash, a.hold.Owner, a.hold.Fence, a.mark}
}

// recordNew lists the arguments of "record new or fail", which meets no row.
func recordNew(a *postgres.RecordArgs) []any {
	return a.Settled.List(a.ID.Hash, a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Fingerprint, a.Owner, a.Attempt, a.Fence, a.Steps, a.CreatedAt, a.Mark, a.Token)
}
