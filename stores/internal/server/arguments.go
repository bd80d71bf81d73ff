package server

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// The arguments of the statements that the servers share. A struct names those of a
// statement or of a family, and its methods list them in the order of the statements. A
// value of type any is NULL if it is nil. Durations are microseconds.

// IDArgs are the columns of a command's ID.
type IDArgs struct {
	Hash                   []byte
	Tenant, Operation, Key any
}

// ClaimArgs are the arguments of "claim".
type ClaimArgs struct {
	ID          IDArgs
	Fingerprint any
	Owner       []byte
	LapsedKeep  int64
	Lease       int64
}

// List lists the arguments of "claim" and "claim in". A dialect may add more.
func (a ClaimArgs) List(more ...any) []any {
	list := append(make([]any, 0, 8+len(more)), a.ID.Hash, a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Fingerprint, a.Owner, a.LapsedKeep, a.Lease)
	return append(list, more...)
}

// SeenArgs name a row as it was seen.
type SeenArgs struct {
	Hash, Owner []byte
	Fence       int64
	State       string

	UnreadableFingerprint, UnreadableSteps bool
}

// TakeArgs are the arguments of "take".
type TakeArgs struct {
	Expired            bool
	Lease              int64
	LapsedKeep         int64
	Owner              []byte
	Attempt            int64
	Fingerprint, Steps any
	Error              any
	Seen               SeenArgs
	SeenSteps          any
}

// List lists the arguments.
func (a TakeArgs) List() []any {
	return []any{
		a.Expired, a.Lease, a.LapsedKeep, a.Owner, a.Attempt, a.Fingerprint, a.Steps, a.Error,
		a.Seen.Hash, a.Seen.Owner, a.Seen.Fence, a.Seen.State, a.SeenSteps,
	}
}

// HoldArgs name a hold.
type HoldArgs struct {
	Hash, Owner []byte
	Fence       int64
}

// List lists the arguments of "release" and "raise".
func (h HoldArgs) List() []any { return []any{h.Hash, h.Owner, h.Fence} }

// Renew lists the arguments of "renew".
func (h HoldArgs) Renew(lease int64) []any { return []any{lease, h.Hash, h.Owner, h.Fence} }

// Step lists the arguments of "step". seen are the steps as they were.
func (h HoldArgs) Step(lease int64, steps, seen any) []any {
	return []any{lease, steps, h.Hash, h.Owner, h.Fence, seen}
}

// ReleaseWithRows lists the arguments of "release with rows".
func (h HoldArgs) ReleaseWithRows(token []byte) []any {
	return []any{token, h.Hash, h.Owner, h.Fence}
}

// SettledArgs are the values of a settled record.
type SettledArgs struct {
	State        string
	Status       int64
	Final        bool
	Ref, Error   any
	Header, Body any
	Keep         any // for how long; nil: until someone resolves it
}

// List lists the arguments, and then others.
func (a SettledArgs) List(more ...any) []any {
	list := append(make([]any, 0, 8+len(more)), a.State, a.Status, a.Final, a.Ref, a.Error, a.Header, a.Body, a.Keep)
	return append(list, more...)
}

// Settle lists the arguments of "settle".
func (a SettledArgs) Settle(h HoldArgs) []any { return a.List(h.Hash, h.Owner, h.Fence) }

// SettleWithRows lists the arguments of "settle with rows".
func (a SettledArgs) SettleWithRows(token []byte, h HoldArgs) []any {
	return a.List(token, h.Hash, h.Owner, h.Fence)
}

// OrReleased returns the arguments, or those of a row that is there for its fence alone
// if the settlement is a release.
func (a SettledArgs) OrReleased() SettledArgs {
	if a.State == "" {
		return SettledArgs{State: record.StateReleased, Keep: record.FenceKeep.Microseconds()}
	}
	return a
}

// Kept returns the fingerprint and the steps that a settled record keeps of r. The row of
// a released command has neither.
func (a SettledArgs) Kept(r *onlyonce.Record) (fingerprint, steps any, err error) {
	if a.State == record.StateReleased {
		return nil, nil, nil
	}
	steps, err = record.EncodeSteps(r.Steps)
	return record.NullBytes(record.EncodePrint(r.Fingerprint, r.Summary)), steps, err
}

// KeepFenceArgs are the arguments of "keep fence".
type KeepFenceArgs struct {
	ID    IDArgs
	Owner []byte
	Fence int64
}

// List lists the arguments.
func (a KeepFenceArgs) List() []any {
	return []any{a.ID.Hash, a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Owner, a.Fence}
}

// AuditArgs are the values of an entry of the audit trail, except for the hash of the ID.
type AuditArgs struct {
	ID                    IDArgs
	Actor, Reason, Before any
	After                 any // nil: the record is deleted
}

// List lists the arguments without the hash of the ID.
func (a AuditArgs) List() []any {
	return []any{a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Actor, a.Reason, a.Before, a.After}
}

// A TextEncoder encodes a text as the value of a text column. Its methods return the
// arguments that contain texts.
type TextEncoder func(text string) any

// Optional makes a text a value that is NULL if the text is empty.
func (e TextEncoder) Optional(text string) any {
	if text == "" {
		return nil
	}
	return e(text)
}

// ID returns the columns of a command's ID.
func (e TextEncoder) ID(k *record.Key) IDArgs {
	return IDArgs{Hash: k.Hash[:], Tenant: e(k.ID.Tenant), Operation: e(k.ID.Operation), Key: e(k.ID.Key)}
}

// Claim returns the arguments of a claim on a new command.
func (e TextEncoder) Claim(k *record.Key, c *onlyonce.Claim) ClaimArgs {
	return ClaimArgs{
		ID: e.ID(k), Fingerprint: record.NullBytes(record.EncodePrint(c.Fingerprint, c.Summary)), Owner: []byte(c.Owner), LapsedKeep: record.LapsedKeep(c), Lease: c.Lease.Microseconds(),
	}
}

// KeepFence returns the arguments that keep a fence of an owner.
func (e TextEncoder) KeepFence(k *record.Key, owner string, fence int64) KeepFenceArgs {
	return KeepFenceArgs{ID: e.ID(k), Owner: []byte(owner), Fence: fence}
}

// Take returns the arguments of a claim on the record that was seen.
func (e TextEncoder) Take(k *record.Key, c *onlyonce.Claim, seen *record.Stored) (TakeArgs, error) {
	r := record.Next(c, seen, 0, 0)
	steps, err := record.EncodeSteps(r.Steps)
	return TakeArgs{
		Expired: seen.Expired, Lease: c.Lease.Microseconds(), LapsedKeep: record.LapsedKeep(c), Owner: []byte(c.Owner), Attempt: int64(r.Attempt),
		Fingerprint: record.NullBytes(record.EncodePrint(r.Fingerprint, r.Summary)), Steps: steps, Error: e.Optional(r.Error), Seen: SeenAs(k, seen), SeenSteps: seen.StepsAs,
	}, err
}

// Settled returns the values of a settled record.
func (e TextEncoder) Settled(st *onlyonce.Settlement) SettledArgs {
	return SettledArgs{
		State: string(st.State), Status: int64(st.Result.Status), Final: st.Final, Ref: e.Optional(st.Result.Ref), Error: e.Optional(st.Error),
		Header: record.EncodeHeader(&st.Result), Body: record.NullBytes(st.Result.Body), Keep: record.Keep(st),
	}
}

// Audit returns an entry of the audit trail.
func (e TextEncoder) Audit(k *record.Key, was *record.Stored, st *onlyonce.Settlement, d *onlyonce.Decision) AuditArgs {
	a := AuditArgs{ID: e.ID(k), Actor: e(d.Actor), Reason: e(d.Reason), Before: e(record.EncodeBefore(&was.Record))}
	if after, ok := record.EncodeAfter(st).(string); ok {
		a.After = e(after)
	}
	return a
}

// HoldOf names a hold.
func HoldOf(k *record.Key, h *onlyonce.Hold) HoldArgs {
	return HoldArgs{Hash: k.Hash[:], Owner: []byte(h.Owner), Fence: h.Fence}
}

// SeenAs names a row as it was seen.
func SeenAs(k *record.Key, seen *record.Stored) SeenArgs {
	return SeenArgs{Hash: k.Hash[:], Owner: []byte(seen.Owner), Fence: seen.Fence, State: seen.As, UnreadableFingerprint: seen.UnreadableFingerprint, UnreadableSteps: seen.UnreadableSteps}
}
