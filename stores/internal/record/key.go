package record

import "github.com/onlyonce-go/onlyonce"

// A Key is an ID with its hash.
type Key struct {
	ID   onlyonce.ID
	Hash [32]byte
}

// KeyOf returns the key of an ID.
func KeyOf(id onlyonce.ID) Key { return Key{ID: id, Hash: id.Hash()} }
