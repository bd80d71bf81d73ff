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
func (a *ClaimArgs) List(more ...any) []any {
	return append([]any{a.ID.Hash, a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Fingerprint, a.Owner, a.LapsedKeep, a.Lease}, more...)
}

// SeenArgs name a row as it was seen.
type SeenArgs struct {
	Hash, Owner []byte
	Fence       int64
	State       string
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
func (a *TakeArgs) List() []any {
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
func (h *HoldArgs) List() []any { return []any{h.Hash, h.Owner, h.Fence} }

// Renew lists the arguments of "renew".
func (h *HoldArgs) Renew(lease int64) []any { return []any{lease, h.Hash, h.Owner, h.Fence} }

// Step lists the arguments of "step". seen are the steps as they were.
func (h *HoldArgs) Step(lease int64, steps, seen any) []any {
	return []any{lease, steps, h.Hash, h.Owner, h.Fence, seen}
}

// ReleaseWithRows lists the arguments of "release with rows".
func (h *HoldArgs) ReleaseWithRows(token []byte) []any {
	return []any{token, h.Hash, h.Owner, h.Fence}
}

// SettledArgs are what a settled record holds.
type SettledArgs struct {
	State        string
	Status       int64
	Final        bool
	Ref, Error   any
	Header, Body any
	Keep         any // for how long; nil: until someone resolves it
}

// List lists the arguments, and then others.
func (a *SettledArgs) List(more ...any) []any {
	return append([]any{a.State, a.Status, a.Final, a.Ref, a.Error, a.Header, a.Body, a.Keep}, more...)
}

// Settle lists the arguments of "settle".
func (a *SettledArgs) Settle(h *HoldArgs) []any { return a.List(h.Hash, h.Owner, h.Fence) }

// SettleWithRows lists the arguments of "settle with rows".
func (a *SettledArgs) SettleWithRows(token []byte, h *HoldArgs) []any {
	return a.List(token, h.Hash, h.Owner, h.Fence)
}

// OrReleased makes what a settlement that releases leaves a row that is there for its
// fence alone.
func (a *SettledArgs) OrReleased() *SettledArgs {
	if a.State == "" {
		a.State, a.Keep = record.StateReleased, record.FenceKeep.Microseconds()
	}
	return a
}

// KeepFenceArgs are the arguments of "keep fence".
type KeepFenceArgs struct {
	ID    IDArgs
	Owner []byte
	Fence int64
}

// List lists the arguments.
func (a *KeepFenceArgs) List() []any {
	return []any{a.ID.Hash, a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Owner, a.Fence}
}

// idArgs returns the columns of a command's ID.
func (s *Store) idArgs(k *record.Key) IDArgs {
	return IDArgs{
		Hash: k.Hash[:], Tenant: s.dialect.EncodeText(k.ID.Tenant), Operation: s.dialect.EncodeText(k.ID.Operation), Key: s.dialect.EncodeText(k.ID.Key),
	}
}

// SettledArgs returns what a record that is settled holds.
func (s *Store) SettledArgs(st *onlyonce.Settlement) *SettledArgs {
	return &SettledArgs{
		State: string(st.State), Status: int64(st.Result.Status), Final: st.Final, Ref: s.text(st.Result.Ref), Error: s.text(st.Error),
		Header: record.EncodeHeader(st.Result.Header), Body: record.NullBytes(st.Result.Body), Keep: record.Keep(st),
	}
}

// text makes a string a value that is NULL if it is empty.
func (s *Store) text(text string) any {
	if text == "" {
		return nil
	}
	return s.dialect.EncodeText(text)
}
