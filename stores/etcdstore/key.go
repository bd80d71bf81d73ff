package etcdstore

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
)

// keys names the keys of a store.
type keys struct{ prefix string }

// clock has the store's clock, without which the store has forgotten its records.
func (k keys) clock() string { return k.prefix + "/clock" }

// records is the range of the records' heads.
func (k keys) records() string { return k.prefix + "/records/" }

// recordsEnd is where that range ends.
func (k keys) recordsEnd() string { return clientv3.GetPrefixRangeEnd(k.records()) }

// partition is the range of the heads of one partition.
func (k keys) partition(partition byte) string {
	return k.records() + hex.EncodeToString([]byte{partition}) + "/"
}

// A place is where the record of an ID is.
type place struct {
	partition byte
	hash      [32]byte
	name      string // of the record within its partition, made of the hash of the ID
	head      string // the key of its head
	rest      string // the key of its steps and its outcome, which exists only if it has any
}

func (k keys) of(id onlyonce.ID) place { return k.place(id.Hash()) }

func (k keys) place(hash [32]byte) place {
	name := base64.RawURLEncoding.EncodeToString(hash[:])
	at := hex.EncodeToString(hash[:1]) + "/" + name
	return place{partition: hash[0], hash: hash, name: name, head: k.records() + at, rest: k.prefix + "/rest/" + at}
}

// parse returns the place of the record that has a head's key. Another key is not ok.
func (k keys) parse(key string) (p place, ok bool) {
	hash, err := base64.RawURLEncoding.DecodeString(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil || len(hash) != len(p.hash) {
		return p, false
	}
	p = k.place([32]byte(hash))
	return p, p.head == key
}
