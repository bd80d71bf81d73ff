package storeurl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/envelope"
	"github.com/onlyonce-go/onlyonce/stores/cryptstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// An Encryption says how the contents of a store's records are encrypted. The zero value
// means that they are not.
type Encryption struct {
	KeysFile        string
	AcceptPlaintext bool
}

// Cipher returns the cipher for records, or nil if they are not encrypted.
func (e Encryption) Cipher() (*cryptstore.Cipher, error) {
	switch {
	case e.KeysFile == "" && e.AcceptPlaintext:
		return nil, mistakef("--accept-plaintext has no effect without --encryption-keys-file: name the file with the keys, or leave it out")
	case e.KeysFile == "":
		return nil, nil
	}
	keys, err := cryptstore.KeysFromFile(e.KeysFile)
	if err != nil {
		return nil, err
	}
	return cryptstore.New(cryptstore.Config{Keys: keys, AcceptPlaintext: e.AcceptPlaintext}), nil
}

// errLacksKeys means that a record would be stored in clear among encrypted ones. Programs that
// have the keys can't use it.
var errLacksKeys = errors.New("the records of this store are encrypted: pass the keys of its programs with --encryption-keys-file")

// CheckKeys returns an error if the records of a store are encrypted although no keys were
// given.
func (e Encryption) CheckKeys(ctx context.Context, store onlyonce.Lister) error {
	if e.KeysFile != "" {
		return nil
	}
	for r, err := range store.List(ctx, onlyonce.Filter{Limit: 100}) {
		if err != nil {
			return err
		}
		if IsEncrypted(r) {
			return errLacksKeys
		}
	}
	return nil
}

// IsEncrypted reports whether the contents of a record are still encrypted.
func IsEncrypted(r onlyonce.Record) bool {
	return len(r.Result.Header) == 0 && envelope.Is(r.Result.Body)
}

// An Editable is a store whose records a person can read and resolve.
type Editable interface {
	onlyonce.Store
	onlyonce.Lister
	onlyonce.Resolver
}

// WithDecrypted calls fn with the store that the URL raw names, which is there already. fn
// sees the decrypted records.
func WithDecrypted(ctx context.Context, raw string, e Encryption, fn func(Editable) error) error {
	cipher, err := e.Cipher()
	if err != nil {
		return err
	}
	return WithRecords(ctx, raw, func(store Records) error {
		if cipher == nil {
			return fn(store)
		}
		return fn(cipher.Wrap(store).(Editable)) // it has the powers of the store
	})
}

// ReadDecrypted calls fn with the store that the URL raw names, for reading, as WithReader
// does. fn sees the decrypted records.
func ReadDecrypted(ctx context.Context, raw string, e Encryption, fn func(onlyonce.Lister) error) error {
	cipher, err := e.Cipher()
	if err != nil {
		return err
	}
	return WithReader(ctx, raw, func(store onlyonce.Lister) error {
		if cipher == nil {
			return fn(store)
		}
		whole, ok := store.(onlyonce.Store)
		if !ok {
			whole = readOnly{store.(*sqlstore.Reader)}
		}
		return fn(cipher.Wrap(whole).(onlyonce.Lister))
	})
}

// readOnly makes a store of a reader: every method that writes returns an error.
type readOnly struct{ *sqlstore.Reader }

var errReadOnly = fmt.Errorf("the store was opened for reading: %w", onlyonce.ErrUnavailable)

func (readOnly) Claim(context.Context, onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{}, errReadOnly
}

func (readOnly) Renew(context.Context, onlyonce.Hold, time.Duration, map[string][]byte) error {
	return errReadOnly
}

func (readOnly) Settle(context.Context, onlyonce.Hold, onlyonce.Settlement) error { return errReadOnly }

func (readOnly) Resolve(context.Context, onlyonce.Record, onlyonce.Settlement) error {
	return errReadOnly
}

func (readOnly) ResolveAudited(context.Context, onlyonce.Record, onlyonce.Settlement, onlyonce.Decision) error {
	return errReadOnly
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (r readOnly) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	for found, err := range r.List(ctx, onlyonce.Filter{Tenant: id.Tenant, Operation: id.Operation, Key: id.Key}) {
		if err != nil || found.ID == id {
			return found, err
		}
	}
	return onlyonce.Record{}, onlyonce.ErrNotFound
}
