package console

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

const (
	knownIDs    = 4096 // are remembered at least
	knownPlaces = 128  // of which records were seen are remembered at least
)

// recordID is the id of a record in addresses and logs: its hash, which tells nothing
// about its key.
func recordID(id onlyonce.ID) string {
	hash := id.Hash()
	return hex.EncodeToString(hash[:])
}

// A recent set remembers the entries that were added last, between n and twice as many.
type recent[K comparable, V any] struct {
	n          int
	young, old map[K]V
}

func (s *recent[K, V]) add(k K, v V) {
	if s.young == nil || len(s.young) >= s.n {
		s.young, s.old = make(map[K]V), s.young
	}
	s.young[k] = v
}

func (s *recent[K, V]) find(k K) (v V, ok bool) {
	if v, ok = s.young[k]; !ok {
		v, ok = s.old[k]
	}
	return v, ok
}

// A place is a tenant and an operation that records share. The records of a key are found in it by an
// index.
type place struct{ tenant, operation string }

// known remembers the IDs of records that were shown, so that a page about one of them
// is found in any store without a search, even if the record was deleted.
type known struct {
	mu     sync.Mutex
	ids    recent[string, onlyonce.ID]
	places recent[place, struct{}]
}

func newKnown() *known {
	return &known{ids: recent[string, onlyonce.ID]{n: knownIDs}, places: recent[place, struct{}]{n: knownPlaces}}
}

func (k *known) add(id onlyonce.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids.add(recordID(id), id)
	k.places.add(place{id.Tenant, id.Operation}, struct{}{})
}

func (k *known) find(id string) (onlyonce.ID, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ids.find(id)
}

// all returns the known places with a tenant and an operation, each of which may be
// empty for any.
func (k *known) all(tenant, operation string) (list []place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := make(map[place]bool)
	for _, m := range []map[place]struct{}{k.places.young, k.places.old} {
		for p := range m {
			if (tenant == "" || p.tenant == tenant) && (operation == "" || p.operation == operation) && !seen[p] {
				seen[p] = true
				list = append(list, p)
			}
		}
	}
	return list
}

// lookup returns the record with an id, as recordID returns it. The error is
// onlyonce.ErrNotFound if there is none; the ID is then that of a record which has been
// there, or empty.
func (c *console) lookup(ctx context.Context, id string) (onlyonce.ID, onlyonce.Record, error) {
	if known, ok := c.known.find(id); ok {
		r, err := c.store.Lookup(ctx, known)
		return known, r, err
	}
	if hash, err := hex.DecodeString(id); err != nil || len(hash) != len(onlyonce.ID{}.Hash()) {
		return onlyonce.ID{}, onlyonce.Record{}, onlyonce.ErrNotFound
	}
	for r, err := range c.store.List(ctx, onlyonce.Filter{IDPrefix: id, Limit: 1}) {
		if err != nil {
			return onlyonce.ID{}, onlyonce.Record{}, err
		}
		c.known.add(r.ID)
		return r.ID, r, nil
	}
	return onlyonce.ID{}, onlyonce.Record{}, onlyonce.ErrNotFound
}

// findKey returns the records of a key in the known places. Each is found by the store's
// index.
func (c *console) findKey(ctx context.Context, tenant, operation, key string) (found []onlyonce.Record, err error) {
	places := c.known.all(tenant, operation)
	if tenant != "" && operation != "" {
		places = []place{{tenant, operation}}
	}
	for _, p := range places {
		r, err := c.store.Lookup(ctx, onlyonce.ID{Tenant: p.tenant, Operation: p.operation, Key: key})
		switch {
		case errors.Is(err, onlyonce.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			c.known.add(r.ID)
			found = append(found, r)
		}
	}
	return found, nil
}
