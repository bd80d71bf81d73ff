package cryptstore

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// Keys supplies the keys of a store. It is implemented by KeySet and by the type that KeysFromFile
// returns, and can be implemented for a key management service.
type Keys interface {
	// Key returns the key with the ID, or, for an empty ID, the current key: the one with
	// which new values are encrypted. It returns ErrUnknownKey if there is no key with that
	// ID. It may be called concurrently. Its results are kept for Config.CacheKeys, and its
	// errors for one second. A call may take ten seconds. Then its context ends, and the calls
	// of the store that wait for it return onlyonce.ErrUnavailable, also if it does not return.
	Key(ctx context.Context, id string) (Key, error)
}

// ErrUnknownKey means that a record was encrypted with a key that the Keys do not have, also
// if they have another key with its ID. The record is not corrupt: its command neither runs
// again nor is replayed until the key is there.
var ErrUnknownKey = errors.New("the key is not known: add it to the keys again, because there are records that were encrypted with it")

// A Key is a key of 32 bytes with an ID, which is stored in clear with every value that the
// key encrypts. Two keys must never have the same ID.
type Key struct {
	id     string
	secret [keySize]byte
}

// NewKey returns the key with an ID of 1 to 64 letters, digits, dots, hyphens and underscores
// of ASCII, and a secret of 32 random bytes.
func NewKey(id string, secret []byte) (Key, error) {
	k := Key{id: id}
	switch {
	case !validKeyID(id):
		return Key{}, errors.New("cryptstore: the ID of a key must have 1 to 64 letters, digits, dots, hyphens and underscores")
	case len(secret) != keySize:
		return Key{}, fmt.Errorf("cryptstore: the key %q has %d bytes: make one of %d random bytes, such as those of openssl rand -hex %d", id, len(secret), keySize, keySize)
	}
	copy(k.secret[:], secret)
	return k, nil
}

// ID returns the key's ID.
func (k Key) ID() string { return k.id }

// checkSize is the length of the key check of an envelope.
const checkSize = 8

// check returns a value that differs between keys and reveals nothing about them.
func (k Key) check() (c [checkSize]byte) {
	mac := hmac.New(sha256.New, k.secret[:])
	mac.Write([]byte("onlyonce cryptstore key check"))
	copy(c[:], mac.Sum(nil))
	return c
}

// Format writes the key's ID, and never its secret, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "key %q", k.id) }

const longestKeyID = 64

func validKeyID(id string) bool {
	if id == "" || len(id) > longestKeyID {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// A KeySet is a fixed set of keys, one of which is the current one.
type KeySet struct {
	keys    map[string]Key
	current string
}

// NewKeySet returns the set of a current key and of others, with which older records were
// encrypted.
func NewKeySet(current Key, others ...Key) (*KeySet, error) {
	s := &KeySet{keys: make(map[string]Key, 1+len(others)), current: current.id}
	for _, k := range append([]Key{current}, others...) {
		if k.id == "" {
			return nil, errors.New("cryptstore: a key has no ID: make keys with NewKey")
		}
		if _, twice := s.keys[k.id]; twice {
			return nil, fmt.Errorf("cryptstore: there are two keys with the ID %q: give each key an ID of its own", k.id)
		}
		s.keys[k.id] = k
	}
	return s, nil
}

// Key returns the key with the ID, or the current one.
func (s *KeySet) Key(_ context.Context, id string) (Key, error) {
	if id == "" {
		id = s.current
	}
	k, ok := s.keys[id]
	if !ok {
		return Key{}, ErrUnknownKey
	}
	return k, nil
}

// ParseKeys reads a set of keys, with one key a line: its ID, white space, and its 32 bytes in
// hexadecimal or in standard base64. A line "current ID" says which key is the current one;
// it may be left out if there is only one key. Empty lines and lines that begin with # are
// ignored. A semicolon ends a line, too. No error repeats anything but the IDs of keys.
func ParseKeys(text string) (*KeySet, error) {
	var keys []Key
	current, n := "", 0
	for line := range strings.SplitSeq(strings.ReplaceAll(text, ";", "\n"), "\n") {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("cryptstore: line %d of the keys has %d words: write the ID of a key and its 32 bytes in hexadecimal, or \"current\" and the ID of a key", n, len(fields))
		}
		if fields[0] == "current" {
			if current != "" {
				return nil, fmt.Errorf("cryptstore: line %d of the keys names a second current key: leave one out", n)
			}
			current = fields[1]
			continue
		}
		secret, ok := decodeSecret(fields[1])
		if !ok {
			return nil, fmt.Errorf("cryptstore: line %d of the keys has no key of %d bytes: write them in hexadecimal, such as the output of openssl rand -hex %d", n, keySize, keySize)
		}
		k, err := NewKey(fields[0], secret)
		if err != nil {
			return nil, fmt.Errorf("%w (line %d of the keys)", err, n)
		}
		keys = append(keys, k)
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("cryptstore: there are no keys: write a line with the ID of a key and its 32 bytes in hexadecimal")
	case current == "" && len(keys) > 1:
		return nil, errors.New("cryptstore: there are several keys, and none is the current one: add a line with \"current\" and the ID of a key")
	case current == "":
		current = keys[0].id
	}
	for i, k := range keys {
		if k.id == current {
			keys[0], keys[i] = keys[i], keys[0]
			return NewKeySet(keys[0], keys[1:]...)
		}
	}
	return nil, errors.New("cryptstore: the current key is not among the keys: add it, or name another one as the current one")
}

// decodeSecret decodes a key of 32 bytes.
func decodeSecret(s string) ([]byte, bool) {
	secret, err := hex.DecodeString(s)
	if len(s) != 2*keySize {
		secret, err = base64.StdEncoding.Strict().DecodeString(s)
	}
	return secret, err == nil && len(secret) == keySize
}

// unavailable is the error of a call that has changed nothing because of the keys.
func unavailable(doing string, err error) error {
	return fmt.Errorf("cryptstore: %s: %w: %w", doing, onlyonce.ErrUnavailable, err)
}

// A recordError says why a record that the store has can't be used. An integration that runs a
// command without its store must not run this one.
type recordError struct{ error }

func (e recordError) Unwrap() error { return e.error }

// FoundRecord distinguishes the error from those of a store that can't be reached.
func (recordError) FoundRecord() {}
