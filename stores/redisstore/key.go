package redisstore

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// IDs are spread over partitions by their hashes. The keys of a partition have the
// same hash tag, which puts them into one slot of a cluster.
const partitions = 256

// keys names the keys of a store.
type keys struct{ prefix, identity string }

// with returns the names that have another identity in them.
func (k keys) with(identity string) keys { return keys{k.prefix, identity} }

// own returns the prefix of the keys of a partition that only this store has.
func (k keys) own(partition byte) string { return k.tag(partition) + k.identity + ":" }

// identityKey has the identity. Migrate creates it.
func (k keys) identityKey(partition byte) string { return k.tag(partition) + "identity" }

// tag returns the prefix of a partition's keys, with its hash tag.
func (k keys) tag(partition byte) string {
	return k.prefix + ":{" + hex.EncodeToString([]byte{partition}) + "}:"
}

// index is a stream with an entry for each record of the partition. Migrate creates it.
func (k keys) index(partition byte) string { return k.own(partition) + "index" }

// open is a sorted set of commands that run or whose outcome is unknown: of all that have
// been counted, and of those that have begun again or became unknown since.
func (k keys) open(partition byte) string { return k.own(partition) + "open" }

// counted is the position up to which the index has been read for open commands.
func (k keys) counted(partition byte) string { return k.own(partition) + "counted" }

// swept is the position up to which the index has been cleared of entries without a record.
func (k keys) swept(partition byte) string { return k.own(partition) + "swept" }

// ended is the channel on which the names of commands that have ended are published.
func (k keys) ended(partition byte) string { return k.tag(partition) + "ended" }

// markOf returns the key that is written after a call's keys were read, in their slot.
func markOf(key string) string {
	return key[:strings.IndexByte(key, '}')+1] + ":confirmed"
}

// A place is where the record of an ID is.
type place struct {
	partition byte
	name      string // of the record within its partition, made of the hash of the ID
	record    string
	index     string
	open      string
}

func (k keys) of(hash [32]byte) place {
	return k.place(hash[0], base64.RawURLEncoding.EncodeToString(hash[:]))
}

func (k keys) place(partition byte, name string) place {
	return place{partition: partition, name: name, record: k.own(partition) + name, index: k.index(partition), open: k.open(partition)}
}
