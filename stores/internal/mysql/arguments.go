package mysql

import "github.com/onlyonce-go/onlyonce/stores/internal/server"

// recordArgs are the arguments of "record" and "record again". A value of type any is
// NULL if it is nil.
type recordArgs struct {
	settled        server.SettledArgs
	id             server.IDArgs
	fingerprint    any
	owner          []byte
	attempt, fence int64
	steps          any
	createdAt      int64
	token          any // of the transaction; nil: none
}

// list lists the arguments of "record".
func (a *recordArgs) list() []any {
	return a.settled.List(a.id.Hash, a.id.Tenant, a.id.Operation, a.id.Key, a.fingerprint, a.owner, a.attempt, a.fence, a.steps, a.createdAt, a.token)
}

// again lists the arguments of "record again".
func (a *recordArgs) again(seen server.SeenArgs, seenSteps any) []any {
	return a.settled.List(a.fingerprint, a.owner, a.attempt, a.fence, a.steps, a.createdAt, a.token,
		seen.Hash, seen.Owner, seen.Fence, seen.State, seenSteps)
}

// decision lists the arguments of "resolve", or of "remove" if the decision deletes the
// record.
func decision(s server.SettledArgs, seen server.SeenArgs, owner []byte) []any {
	if s.State == "" {
		return []any{owner, seen.Hash, seen.Owner, seen.Fence, seen.State}
	}
	return s.List(owner, seen.UnreadableFingerprint, seen.UnreadableSteps, seen.Hash, seen.Owner, seen.Fence, seen.State)
}

// claim lists the arguments of "claim": the lease goes in twice.
func claim(a server.ClaimArgs, floor int64) []any { return a.List(a.Lease, floor+1) }

// A claimRow holds the arguments of a row of "claims".
type claimRow struct {
	hash                   []byte
	tenant, operation, key []byte
	fingerprint            any
	owner                  []byte
	lapsedKeep, leaseUntil int64
	fence                  int64 // which is its created_at, too
}

func (r *claimRow) appendTo(values []any) []any {
	return append(values, r.hash, r.tenant, r.operation, r.key, r.fingerprint, r.owner, r.lapsedKeep, r.leaseUntil, r.fence, r.fence)
}

// A settleRow holds the arguments of a row of "settles".
type settleRow struct {
	settled server.SettledArgs
	hash    any // nil: the row only fills the size, and meets none
	owner   []byte
	fence   int64
}

func (r *settleRow) appendTo(values []any) []any {
	s := &r.settled
	return append(values, s.State, s.Status, s.Final, s.Ref, s.Error, s.Header, s.Body, s.Keep, r.hash, r.owner, r.fence)
}
