package postgres

import "github.com/onlyonce-go/onlyonce/stores/internal/server"

// recordArgs are the arguments of "record" besides what a settled record holds. A value
// of type any is NULL if it is nil.
type recordArgs struct {
	id                              server.IDArgs
	fingerprint                     any
	owner                           []byte
	attempt, fence                  int64
	steps                           any
	createdAt                       int64
	seenOwner, seenFence, seenState any // of the row that is there; nil: there is none
	mark                            any // of the transaction; nil: none
	token                           any // of the transaction; nil: none
	seenSteps                       any
}

func (a *recordArgs) list(s *server.SettledArgs) []any {
	return s.List(a.id.Hash, a.id.Tenant, a.id.Operation, a.id.Key, a.fingerprint, a.owner, a.attempt, a.fence, a.steps, a.createdAt,
		a.seenOwner, a.seenFence, a.seenState, a.mark, a.token, a.seenSteps)
}

// decision lists the arguments of "resolve", or of "remove" if s is nil.
func decision(s *server.SettledArgs, seen *server.SeenArgs, owner []byte) []any {
	if s == nil {
		return []any{seen.Hash, seen.Owner, seen.Fence, seen.State, owner}
	}
	return s.List(seen.Hash, seen.Owner, seen.Fence, seen.State, owner)
}
