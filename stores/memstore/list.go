package memstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// List lists records, newest first. It reads every record of the store, but holds no
// lock while it yields one.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		if err := s.list(ctx, f, yield); err != nil {
			yield(onlyonce.Record{}, fmt.Errorf("memstore: list: %w", err))
		}
	}
}

// list yields pages of records until there are no more. A record that no longer exists
// when it is to be yielded does not count toward the limit.
func (s *Store) list(ctx context.Context, f onlyonce.Filter, yield func(onlyonce.Record, error) bool) error {
	for left := f.Limit; ; f.Limit = left {
		page := s.newest(f)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range page {
			r, listed := s.current(e, f)
			if !listed {
				continue
			}
			if !yield(r, nil) {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			left--
		}
		if f.Limit <= 0 || left == 0 || len(page) < f.Limit {
			return nil
		}
		last := &page[len(page)-1].record
		f.After = onlyonce.Record{ID: last.ID, CreatedAt: last.CreatedAt}
	}
}

// newest returns the entries that f lists as of now, at most f.Limit.
func (s *Store) newest(f onlyonce.Filter) []*entry {
	var found []*entry
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		now := s.now()
		for _, e := range sh.byHash {
			for ; e != nil; e = e.next {
				if e.listed(f, now) {
					found = append(found, e)
				}
			}
		}
		sh.mu.Unlock()
		if f.Limit > 0 && len(found) > f.Limit {
			slices.SortFunc(found, newestFirst)
			clear(found[f.Limit:])
			found = found[:f.Limit]
		}
	}
	slices.SortFunc(found, newestFirst)
	return found
}

// current returns the record of e in its present state, if f still lists it.
func (s *Store) current(e *entry, f onlyonce.Filter) (onlyonce.Record, bool) {
	sh, hash := s.lock(e.record.ID)
	defer sh.mu.Unlock()
	now := s.now()
	if sh.find(e.record.ID, hash) != e || !e.listed(f, now) {
		return onlyonce.Record{}, false
	}
	return s.view(e, now), true
}

func (e *entry) listed(f onlyonce.Filter, now moment) bool {
	r := &e.record
	state, ref := r.State, r.Result.Ref
	if e.remembered(now) {
		state, ref = onlyonce.StateRemembered, ""
	}
	_, unresolved := e.unresolved(now)
	return !e.expired(now) &&
		(f.Tenant == "" || f.Tenant == r.ID.Tenant) &&
		(f.Operation == "" || f.Operation == r.ID.Operation) &&
		(f.Key == "" || f.Key == r.ID.Key) &&
		(f.Ref == "" || f.Ref == ref) &&
		(f.State == "" || f.State == state) &&
		(!f.Unresolved || unresolved) &&
		(f.IDPrefix == "" || strings.HasPrefix(r.ID.HexHash(), f.IDPrefix)) &&
		(f.FromNewest() || inOrder(&f.After, r) < 0)
}

func newestFirst(a, b *entry) int { return inOrder(&a.record, &b.record) }

// inOrder orders records newest first, and those of the same time by ID. It reads only
// fields that never change, so it needs no lock.
func inOrder(a, b *onlyonce.Record) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt),
		cmp.Compare(a.ID.Tenant, b.ID.Tenant),
		cmp.Compare(a.ID.Operation, b.ID.Operation),
		cmp.Compare(a.ID.Key, b.ID.Key))
}
