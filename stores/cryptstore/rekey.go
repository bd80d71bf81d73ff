package cryptstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

// A Rekeyed counts the records of a store that Rekey has looked at.
type Rekeyed struct {
	Encrypted int // were encrypted again with the current key
	Current   int // were encrypted with the current key already, or have nothing to encrypt: only the ID is left

	// Left are those that Rekey leaves as they are: a command is processing, a retry will need
	// steps that were encrypted with another key, the record is corrupt, or it was changed
	// while Rekey looked at it. They need their keys until they expire, or until Rekey is called
	// again after the command has completed: its steps stay as they were encrypted until then.
	Left int
}

// rekeyPage is how many records are listed at a time.
const rekeyPage = 200

// Rekey encrypts the settled records of a store again with the current key, so that an older
// key can be deleted if no record is left. With Config.AcceptPlaintext, it also encrypts records
// that were not encrypted. store is the store that Wrap wraps, and must be an onlyonce.Lister and an
// onlyonce.Resolver. Programs can use the store while Rekey runs.
//
// For Config.CacheKeys after a new key has become the current one, programs may still encrypt
// with the former one. Records that they store after Rekey has listed them need that key, so
// call Rekey after this time, and delete no key because of an earlier call.
//
// Every record that is encrypted again is changed as onlyonce.Resolver says: it gets a new
// owner, a higher fence, and a new SettledAt, but expires when it would have. The steps of a
// command that will not run again are dropped. The audit trail and the summaries of
// requests are not encrypted again.
//
// After each page of records, Rekey calls progress, unless it is nil. If a record can't be read
// because its key is missing, or it is not encrypted, Rekey continues with the others, and
// returns ErrUnknownKey or ErrNotEncrypted at the end. After any other error it ends at once. It
// can be called again at any time.
func (c *Cipher) Rekey(ctx context.Context, store onlyonce.Store, progress func(Rekeyed)) (n Rekeyed, err error) {
	lister, lists := store.(onlyonce.Lister)
	resolver, resolves := store.(onlyonce.Resolver)
	if !lists || !resolves {
		return n, errors.New("cryptstore: rekey: the store is no Lister or no Resolver: let its records expire instead")
	}
	key, err := c.current(ctx)
	if err != nil {
		return n, unavailable("rekey", err)
	}
	var unread error
	page := onlyonce.Filter{Limit: rekeyPage}
	for {
		var found []onlyonce.Record
		for r, err := range lister.List(ctx, page) {
			if err != nil {
				return n, fmt.Errorf("cryptstore: rekey: %w", err)
			}
			found = append(found, r)
		}
		for _, stored := range found {
			count, err := c.rekey(ctx, key, resolver, stored, &n)
			if err == nil {
				*count++
				continue
			}
			err = fmt.Errorf("cryptstore: rekey the record %s: %w", stored.ID.HexHash()[:16], err)
			switch kind := unreadKind(err); {
			case kind == nil:
				return n, err
			case !errors.Is(unread, kind):
				unread = errors.Join(unread, err)
			}
		}
		if progress != nil {
			progress(n)
		}
		if len(found) < rekeyPage {
			return n, unread
		}
		page.After = found[len(found)-1]
	}
}

// unreadKind returns which error says that a record can't be read although nothing is broken, or
// nil.
func unreadKind(err error) error {
	for _, kind := range []error{ErrUnknownKey, ErrNotEncrypted} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}

// rekey encrypts a record again and returns where it counts.
func (c *Cipher) rekey(ctx context.Context, key *readyKey, resolver onlyonce.Resolver, stored onlyonce.Record, n *Rekeyed) (count *int, err error) {
	if stored.State == onlyonce.StateRemembered {
		return &n.Current, nil
	}
	if !settles(stored.State) || stored.Corrupt {
		return &n.Left, nil
	}
	o, err := c.openRecord(ctx, stored)
	if err != nil {
		return nil, err
	}
	var stale, removed []string // the steps that need another key, and those that say only that there is no value any more
	for _, name := range slices.Sorted(maps.Keys(stored.Steps)) {
		_, there := o.Steps[name]
		switch {
		case keyIDOf(stored.Steps[name]) == key.id, slices.Contains(o.damaged, name):
		case there:
			stale = append(stale, name)
		default:
			removed = append(removed, name)
		}
	}
	switch {
	case o.Corrupt, len(stale) > 0 && !o.Concluded():
		return &n.Left, nil
	case len(stale) == 0 && len(removed) == 0 && keyIDOf(stored.Result.Body) == key.id:
		return &n.Current, nil
	}
	keep := stored.KeepLeft
	if keep == 0 {
		keep = onlyonce.KeepForever
	}
	again := onlyonce.Settlement{State: o.State, Result: o.Result, Error: o.Error, Final: o.Final, Keep: keep}
	err = resolver.Resolve(ctx, stored, c.sealSettlement(key, stored.ID, again, slices.Concat(stale, removed, o.damaged)))
	switch {
	case err == nil:
		return &n.Encrypted, nil
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrNotFound), errors.Is(err, onlyonce.ErrInFlight):
		return &n.Left, nil
	}
	return nil, err
}

// keyIDOf returns the ID of the key with which a value was encrypted, and "" if it was not.
func keyIDOf(b []byte) string {
	const fixed = len(magic) + 3
	if !isEnvelope(b) || len(b) < fixed || len(b) < fixed+int(b[fixed-1]) {
		return ""
	}
	return string(b[fixed:][:b[fixed-1]])
}
