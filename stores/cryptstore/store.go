package cryptstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Wrap returns store with its records encrypted. The result implements those of Purger,
// Lister, Waiter, Resolver, Auditor and Diagnoser that store implements, and Unresolved. It
// panics on a nil store. For a store with transactions, use WrapTx; for one inside a
// transaction of the caller's, wrap the store that WithTx returns.
func (c *Cipher) Wrap(store onlyonce.Store) onlyonce.Store {
	if store == nil {
		panic("cryptstore: Wrap got no store: pass memstore.New(memstore.Config{}) or another")
	}
	s := &sealed{cipher: c, store: store}
	p, bits := s.powers()
	return withPowers(s, &p, bits)
}

// A sealed store is a store whose records are encrypted.
type sealed struct {
	cipher *Cipher
	store  onlyonce.Store
}

// InCallersTx reports whether the wrapped store is in a transaction of the caller's. Such a
// store has no optional powers, so that Wrap returns a sealed store itself.
func (s *sealed) InCallersTx() bool {
	tx, ok := s.store.(onlyonce.CallersTx)
	return ok && tx.InCallersTx()
}

// maxTakes is how often a claim tries to take over a record that other calls keep changing.
const maxTakes = 20

// errContended is the error of a claim that tried as often as it may.
var errContended = errors.New("other calls on the command came first every time")

// Claim asks for the right to run a command. It takes over a record only once it has decrypted
// it, so taking over costs one more call of the store than without encryption.
func (s *sealed) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	const doing = "claim"
	key, next, err := s.begin(ctx, doing, c)
	if err != nil {
		return onlyonce.Record{}, err
	}
	var dropped map[string][]byte
	for range maxTakes {
		stored, err := s.store.Claim(ctx, next)
		if err != nil {
			return onlyonce.Record{}, err
		}
		if stored.Owner != c.Owner {
			dropped = nil
		}
		o, err := s.cipher.openTaken(ctx, stored, dropped)
		switch {
		case err != nil && stored.Owner == c.Owner:
			return onlyonce.Record{}, fmt.Errorf("cryptstore: %s: %w", doing, recordError{err})
		case err != nil:
			return onlyonce.Record{}, unavailable(doing, recordError{err})
		case stored.Owner == c.Owner && stored.State == onlyonce.StateProcessing && len(o.damaged) > 0:
			// The attempt runs these steps again. Until then, they must not make its record corrupt.
			h := onlyonce.Hold{ID: c.ID, Owner: stored.Owner, Fence: stored.Fence}
			if err := s.store.Renew(ctx, h, c.Lease, removeSteps(key, c.ID, o.damaged)); err != nil {
				return onlyonce.Record{}, err
			}
			return o.Record, nil
		}
		again := false
		if next, again, err = s.prepareTakeover(ctx, key, c, stored, &o); !again || err != nil {
			return o.Record, err
		}
		dropped = o.dropped(stored)
	}
	return onlyonce.Record{}, unavailable(doing, recordError{errContended})
}

// begin returns the key for a claim, because nothing must run whose result can't be encrypted,
// and the claim that is sent first. Without a key, it looks only whether there is a record.
func (s *sealed) begin(ctx context.Context, doing string, c onlyonce.Claim) (key *readyKey, first onlyonce.Claim, err error) {
	if err := c.Check(); err != nil {
		return nil, c, fmt.Errorf("cryptstore: %s: %w", doing, err)
	}
	if key, err = s.cipher.current(ctx); err != nil {
		if _, missing := s.store.Lookup(ctx, c.ID); missing == nil {
			err = recordError{err}
		}
		return nil, c, unavailable(doing, err)
	}
	c.Summary = s.cipher.sealText(key, summaryPlace(c.ID), c.Summary)
	return key, withoutTaking(c), nil
}

// withoutTaking returns the claim as one that takes over no record.
func withoutTaking(c onlyonce.Claim) onlyonce.Claim {
	c.RetryFailed, c.TakeUnknown = false, false
	return c
}

// prepareTakeover reports whether the claim, which was not granted, takes over the record that it found.
// It returns the claim to be sent for that: one that takes over no record in another state,
// which would have to be decrypted first.
func (s *sealed) prepareTakeover(ctx context.Context, key *readyKey, c onlyonce.Claim, stored onlyonce.Record, o *openRecord) (next onlyonce.Claim, again bool, err error) {
	next = withoutTaking(c)
	next.Summary = s.cipher.sealText(key, summaryPlace(c.ID), c.Summary)
	if stored.ID != c.ID || !c.Takes(o.Record) {
		return next, false, nil
	}
	switch stored.State {
	case o.State:
		next.RetryFailed = o.State == onlyonce.StateFailed
		next.TakeUnknown = !next.RetryFailed
		return next, true, nil
	case onlyonce.StateProcessing:
		next.TakeUnknown = true
		return next, true, nil
	}
	// The store does not know that the record is corrupt. It takes over an unknown outcome only.
	resolver, ok := s.store.(onlyonce.Resolver)
	if !ok {
		return next, false, recordError{fmt.Errorf("cryptstore: take over a record: %w: %s; the store has no Resolve by which it could be changed: delete it", onlyonce.ErrUnavailable, o.Error)}
	}
	keep := onlyonce.KeepForever
	if stored.KeepLeft > 0 {
		keep = stored.KeepLeft
	}
	unknown := onlyonce.Settlement{State: onlyonce.StateUnknown, Error: o.Error, Keep: keep}
	err = resolver.Resolve(ctx, stored, s.cipher.sealSettlement(key, c.ID, unknown, o.damaged))
	if errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) || errors.Is(err, onlyonce.ErrInFlight) {
		err = nil // it has changed: look again
	}
	return next, err == nil, err
}

// Renew makes the hold's lease end one full lease from now and adds steps to those of the
// record.
func (s *sealed) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if len(steps) > 0 {
		key, err := s.cipher.currentOrLast(ctx)
		if err != nil {
			return unavailable("renew", err)
		}
		steps = s.cipher.sealSteps(key, h.ID, steps)
	}
	return s.store.Renew(ctx, h, lease, steps)
}

// Settle ends the attempt.
func (s *sealed) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if st.State != "" {
		key, err := s.cipher.currentOrLast(ctx)
		if err != nil {
			return unavailable("settle", err)
		}
		st = s.cipher.sealSettlement(key, h.ID, st, nil)
	}
	return s.store.Settle(ctx, h, st)
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *sealed) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	stored, err := s.store.Lookup(ctx, id)
	if err != nil {
		return onlyonce.Record{}, err
	}
	o, err := s.cipher.openRecord(ctx, stored)
	if err != nil {
		return onlyonce.Record{}, unavailable("lookup", err)
	}
	return o.Record, nil
}

// resolving is a sealed store that is a Resolver.
type resolving struct{ *sealed }

// Resolve settles with st a record that no attempt holds, or deletes it.
func (s resolving) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	return s.resolve(ctx, seen, st, s.store.(onlyonce.Resolver).Resolve)
}

// resolve calls end with the record and its settlement in the form in which the wrapped store has them.
func (s resolving) resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, end func(context.Context, onlyonce.Record, onlyonce.Settlement) error) error {
	const doing = "resolve"
	if err := st.Check(); err != nil {
		return fmt.Errorf("cryptstore: %s: %w", doing, err)
	}
	stored, err := s.store.Lookup(ctx, seen.ID)
	if err != nil {
		return err
	}
	o, err := s.cipher.openRecord(ctx, stored)
	if err != nil {
		return unavailable(doing, err)
	}
	if err := o.Resolvable(seen, st); err != nil { // by the state that the record has when decrypted
		return fmt.Errorf("cryptstore: %s: %w", doing, err)
	}
	if st.State != "" {
		key, err := s.cipher.current(ctx)
		if err != nil {
			return unavailable(doing, err)
		}
		st = s.cipher.sealSettlement(key, seen.ID, st, o.damaged)
	}
	seen.State = stored.State
	return end(ctx, seen, st)
}

// auditing is a sealed store that is an Auditor.
type auditing struct{ resolving }

// ResolveAudited does what Resolve does, and adds an entry to the audit trail of the wrapped
// store. The person and the reason are not encrypted.
func (s auditing) ResolveAudited(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d onlyonce.Decision) error {
	return s.resolve(ctx, seen, st, func(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
		return s.store.(onlyonce.Auditor).ResolveAudited(ctx, seen, st, d)
	})
}

// AuditTrail returns the entries about a command. An error text that can't be decrypted
// because it is damaged, or its key is not there any more, or it is not encrypted, is replaced
// by a sentence that says so.
func (s auditing) AuditTrail(ctx context.Context, id onlyonce.ID) ([]onlyonce.AuditEntry, error) {
	entries, err := s.store.(onlyonce.Auditor).AuditTrail(ctx, id)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		texts := []*string{&e.After.Error, &e.Before.Error}
		if e.Before.Corrupt { // its error is the wrapped store's own
			texts = texts[:1]
		}
		for _, t := range texts {
			opened, err := s.cipher.openError(ctx, &onlyonce.Record{ID: id, Error: *t})
			switch {
			case errors.Is(err, onlyonce.ErrCorrupt):
				opened = fmt.Sprintf("%v: the error: %v", onlyonce.ErrCorrupt, err)
			case errors.Is(err, ErrUnknownKey), errors.Is(err, ErrNotEncrypted):
				opened = fmt.Sprintf("the error can't be shown: %v", err)
			case err != nil:
				return nil, unavailable("read the audit trail", err)
			}
			*t = opened
		}
	}
	return entries, nil
}

// listing is a sealed store that is a Lister.
type listing struct{ *sealed }

// List lists records, newest first. A record that can't be decrypted without being corrupt
// ends the list with an error. A list of unknown outcomes reads and decrypts every record,
// like those of other stores, because a record may turn out to be corrupt.
func (s listing) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		read := f
		if f.State != "" {
			read.Limit = 0
		}
		if f.State == onlyonce.StateUnknown {
			read.State = ""
		}
		listed := 0
		for stored, err := range s.store.(onlyonce.Lister).List(ctx, read) {
			if err != nil {
				yield(onlyonce.Record{}, err)
				return
			}
			o, err := s.cipher.openRecord(ctx, stored)
			if err != nil {
				yield(onlyonce.Record{}, unavailable("list", err))
				return
			}
			if f.State != "" && f.State != o.State {
				continue
			}
			if !yield(o.Record, nil) {
				return
			}
			if listed++; listed == f.Limit {
				return
			}
		}
	}
}
