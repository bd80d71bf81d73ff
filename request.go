package onlyonce

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"time"
)

// An ID names one command: whose it is, what is asked for, and the key the
// caller chose. Tenant and Operation are empty only on purpose: an empty Tenant
// puts all callers into one namespace.
type ID struct{ Tenant, Operation, Key string }

// Hash returns the SHA-256 over the length-prefixed parts of the ID. Two IDs
// have the same hash only if all three parts are the same bytes, so a store
// may use it as its primary key whatever collation it has.
func (id ID) Hash() [sha256.Size]byte {
	var fixed [256]byte
	b := fixed[:0]
	for _, s := range [...]string{id.Tenant, id.Operation, id.Key} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	return sha256.Sum256(b)
}

// A Request is what a caller asks for: a command, and what it must have in
// common with its repeats.
type Request struct {
	ID          ID
	Fingerprint []byte        // what a repeat must have the same; nil: not compared
	Wait        time.Duration // how long this caller waits for a running attempt; 0: as the Guard's Config says, negative: not at all
}

// Fingerprint returns the SHA-256 over the length-prefixed parts: no other
// division of the same bytes into parts has the same fingerprint.
func Fingerprint(parts ...[]byte) []byte {
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
	h.Reset()
	for _, p := range parts {
		binary.BigEndian.PutUint64(h.length[:], uint64(len(p)))
		h.Write(h.length[:])
		h.Write(p)
	}
	return h.Sum(make([]byte, 0, sha256.Size))
}

// A hasher is a SHA-256 with room for the length of a part.
type hasher struct {
	hash.Hash
	length [8]byte
}

var hashers = sync.Pool{New: func() any { return &hasher{Hash: sha256.New()} }}
