package sqlite

import (
	"database/sql/driver"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// The arguments of the statements. A struct names those of a statement or of a family,
// and its methods list them in the order of the statement. An instant that is nil means
// the clock's time when the statement runs.

// claimArgs are those of "claim" and "insert".
type claimArgs struct {
	id                     []byte
	tenant, operation, key string
	fingerprint            any // NULL if nil
	owner                  []byte
	lapsedKeep             int64
}

// A claimList lists the arguments of "claim" and "insert", which begin alike. It is made
// before the claim is queued, so that the one writer need not.
type claimList []driver.NamedValue

func (a *claimArgs) list() claimList {
	return engine.Args(a.id, a.tenant, a.operation, a.key, a.fingerprint, a.owner, a.lapsedKeep, nil, nil, nil)
}

func (l claimList) claim(lease int64) []driver.NamedValue {
	l[7].Value = lease
	return l[:8]
}

func (l claimList) insert(createdAt, fence, leaseUntil int64) []driver.NamedValue {
	l[7].Value, l[8].Value, l[9].Value = createdAt, fence, leaseUntil
	return l
}

// takeArgs are those of "take".
type takeArgs struct {
	owner              []byte
	attempt            int64
	fence              int64
	leaseUntil         int64
	lapsedKeep         int64
	fingerprint, steps any // NULL if nil
	id                 []byte
}

func (a *takeArgs) list() []driver.NamedValue {
	return engine.Args(a.owner, a.attempt, a.fence, a.leaseUntil, a.lapsedKeep, a.fingerprint, a.steps, a.id)
}

// holdArgs name a hold, as "release" does.
type holdArgs struct {
	id, owner []byte
	fence     int64
}

func (a *holdArgs) release() []driver.NamedValue { return engine.Args(a.id, a.owner, a.fence) }

// renew lists the arguments of "renew".
func (a *holdArgs) renew(now any, lease int64) []driver.NamedValue {
	return engine.Args(now, lease, a.id, a.owner, a.fence)
}

// completedArgs are those of "settle completed".
type completedArgs struct {
	status            int64
	ref, header, body any // NULL if nil
	hold              holdArgs
}

// A completedList lists the arguments of "settle completed". It is made before the
// settlement is queued, so that the one writer need not.
type completedList []driver.NamedValue

func (a *completedArgs) list() completedList {
	return engine.Args(a.status, a.ref, a.header, a.body, nil, nil, a.hold.fence, a.hold.id, a.hold.owner)
}

func (l completedList) at(settledAt int64, expiresAt any) []driver.NamedValue {
	l[4].Value, l[5].Value = settledAt, expiresAt
	return l
}

// settledArgs are the values of a settled record.
type settledArgs struct {
	state                    string
	status                   int64
	final                    int64 // 0 or 1
	ref, error, header, body any   // NULL if nil
	settledAt, expiresAt     any   // nil: now, and after keep
	keep                     any   // nil: until someone resolves it
}

func (a *settledArgs) list(more ...any) []driver.NamedValue {
	return engine.Args(append([]any{a.state, a.status, a.final, a.ref, a.error, a.header, a.body, a.settledAt, a.expiresAt, a.keep}, more...)...)
}

// settle lists the arguments of "settle".
func (a *settledArgs) settle(h *holdArgs) []driver.NamedValue { return a.list(h.id, h.owner, h.fence) }

// resolve lists the arguments of "resolve".
func (a *settledArgs) resolve(unreadableFingerprint, unreadableSteps bool, owner []byte, fence int64, id []byte) []driver.NamedValue {
	return a.list(owner, fence, unreadableFingerprint, unreadableSteps, id)
}

// recordArgs are the arguments of "record" besides the values of a settled record.
type recordArgs struct {
	id                     []byte
	tenant, operation, key string
	fingerprint            any // NULL if nil
	owner                  []byte
	attempt, fence         int64
	steps                  any // NULL if nil
	createdAt              int64
	token                  []byte
}

// record lists the arguments of "record".
func (a *settledArgs) record(r *recordArgs) []driver.NamedValue {
	return a.list(r.id, r.tenant, r.operation, r.key, r.fingerprint, r.owner, r.attempt, r.fence, r.steps, r.createdAt, r.token)
}

// auditArgs are those of "audit".
type auditArgs struct {
	id                     []byte
	tenant, operation, key string
	actor, reason, before  string
	after                  any // NULL if nil
}

func (a *auditArgs) list() []driver.NamedValue {
	return engine.Args(a.id, a.tenant, a.operation, a.key, a.actor, a.reason, a.before, a.after)
}

// keyArgs name a row, as "lookup", "known", "trace" and "audit trail" do.
type keyArgs struct{ id []byte }

func (a *keyArgs) list() []driver.NamedValue { return engine.Args(a.id) }

// delete lists the arguments of "delete".
func (a *keyArgs) delete(fence int64) []driver.NamedValue { return engine.Args(a.id, fence) }

// step lists the arguments of "step".
func (a *keyArgs) step(steps any) []driver.NamedValue { return engine.Args(steps, a.id) }

// token lists the arguments of "token".
func (a *keyArgs) token(token []byte) []driver.NamedValue { return engine.Args(token, a.id) }

// floorArgs are those of "floor".
type floorArgs struct{ fence int64 }

func (a *floorArgs) list() []driver.NamedValue { return engine.Args(a.fence) }

// dueArgs are those of "highest due", "purge", "forget" and "lapsed".
type dueArgs struct {
	now   int64
	limit int64
}

func (a *dueArgs) list() []driver.NamedValue { return engine.Args(a.now, a.limit) }

// listArgs are those of "list", "list unresolved", "list processing" and "list by id". The first and the last id
// of the latter, and the values of the filter, come between them.
type listArgs struct {
	last  int64 // created_at
	limit int64
}

func (a *listArgs) list(ids [][]byte, filter []string) []any {
	args := []any{a.last}
	for _, id := range ids {
		args = append(args, id)
	}
	for _, v := range filter {
		args = append(args, v)
	}
	return append(args, a.limit)
}
