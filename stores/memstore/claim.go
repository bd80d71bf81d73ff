package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Claim asks for the right to run a command. It returns
// onlyonce.ErrUnavailable when the command is new and the store is full of
// records that have not expired.
func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (r onlyonce.Record, err error) {
	if err := ctx.Err(); err != nil {
		return r, fmt.Errorf("memstore: claim: %w", err)
	}
	if err := c.Check(); err != nil {
		return r, fmt.Errorf("memstore: claim: %w", err)
	}
	if s.claim(&c, &r) == nil {
		return r, nil
	}
	s.purge(s.cfg.MaxRecords)
	if err := s.claim(&c, &r); err != nil {
		return r, fmt.Errorf("memstore: claim: %w: %w", onlyonce.ErrUnavailable, err)
	}
	return r, nil
}

// claim sets *r to the record after the claim, unless there is no room for it.
func (s *Store) claim(c *onlyonce.Claim, r *onlyonce.Record) error {
	sh, hash := s.lock(c.ID)
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.find(c.ID, hash)
	if e != nil && e.expired(now) {
		s.remove(sh, e)
		e = nil
	}
	if e == nil {
		var err error
		if e, err = s.add(sh, c.ID, hash, now); err != nil {
			return err
		}
	} else if *r = s.view(e, now); !c.Takes(*r) {
		return nil
	}
	e.begin(c, sh.nextFence(s.wall(now).UnixMicro()), now)
	sh.agenda.set(e)
	s.weigh(e)
	*r = s.view(e, now)
	return nil
}

// Renew makes the hold's lease end one full lease from now and adds steps to
// those of the record.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: renew: %w", err)
	}
	sh, hash := s.lock(h.ID)
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.held(h, hash, now)
	if e == nil || e.settled() {
		return fmt.Errorf("memstore: renew: %w", onlyonce.ErrLost)
	}
	e.until = now.after(lease)
	sh.agenda.set(e)
	e.addSteps(steps)
	s.weigh(e)
	return nil
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: settle: %w", err)
	}
	if err := st.Check(); err != nil {
		return fmt.Errorf("memstore: settle: %w", err)
	}
	sh, hash := s.lock(h.ID)
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.held(h, hash, now)
	if e == nil {
		return fmt.Errorf("memstore: settle: %w", onlyonce.ErrLost)
	}
	if !e.settled() {
		s.end(sh, e, st, now)
	}
	return nil
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	if err := ctx.Err(); err != nil {
		return onlyonce.Record{}, fmt.Errorf("memstore: lookup: %w", err)
	}
	sh, hash := s.lock(id)
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.get(id, hash, now)
	if e == nil {
		return onlyonce.Record{}, fmt.Errorf("memstore: lookup: %w", onlyonce.ErrNotFound)
	}
	return s.view(e, now), nil
}

// Resolve settles with st a record that no attempt holds; a zero st deletes it. The
// record gets a new owner and a higher fence, so the attempt that left it can
// no longer settle it, and a caller that saw the old record must look it up
// again.
func (s *Store) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: resolve: %w", err)
	}
	if err := st.Check(); err != nil {
		return fmt.Errorf("memstore: resolve: %w", err)
	}
	sh, hash := s.lock(seen.ID)
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.get(seen.ID, hash, now)
	if e == nil {
		return fmt.Errorf("memstore: resolve: %w", onlyonce.ErrNotFound)
	}
	if err := s.view(e, now).Resolvable(seen, st); err != nil {
		return fmt.Errorf("memstore: resolve: %w", err)
	}
	e.record.Owner, e.record.Fence = newOwner(), sh.nextFence(s.wall(now).UnixMicro())
	s.end(sh, e, st, now)
	return nil
}

// newOwner returns a random owner for a record that was resolved. No claim has it.
func newOwner() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return string(b)
}
