package sqlstore

import "github.com/onlyonce-go/onlyonce"

// A key is an ID and its hash.
type key struct {
	id   onlyonce.ID
	hash [32]byte
}

func keyOf(id onlyonce.ID) key { return key{id: id, hash: id.Hash()} }
