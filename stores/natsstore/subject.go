package natsstore

import (
	"encoding/base64"
	"encoding/hex"

	"github.com/onlyonce-go/onlyonce"
)

// subjects names the subjects of a store. Those under "records" belong to its stream.
type subjects struct{ prefix string }

// all returns the subject of all messages of the stream.
func (s subjects) all() string { return s.prefix + ".records.>" }

// made has the message without which the stream has forgotten its records.
func (s subjects) made() string { return s.prefix + ".records.made" }

// tick has a message that says how far the stream was at some time.
func (s subjects) tick() string { return s.prefix + ".records.tick" }

// ended is where the names of commands that have ended are published. No stream takes it.
func (s subjects) ended(partition byte) string {
	return s.prefix + ".ended." + hex.EncodeToString([]byte{partition})
}

// A place is where the record of an ID is.
type place struct {
	partition byte
	hash      [32]byte
	name      string // of the record within its partition, made of the hash of the ID
	record    string // its subject
}

func (s subjects) of(id onlyonce.ID) place { return s.place(id.Hash()) }

func (s subjects) place(hash [32]byte) place {
	name := base64.RawURLEncoding.EncodeToString(hash[:])
	partition := hex.EncodeToString(hash[:1])
	return place{partition: hash[0], hash: hash, name: name, record: s.prefix + ".records." + partition + "." + name}
}

// parse returns the place of the record that a subject has; one of another message is not
// ok.
func (s subjects) parse(subject string) (p place, ok bool) {
	const nameSize = 43
	if len(subject) < nameSize {
		return p, false
	}
	hash, err := base64.RawURLEncoding.DecodeString(subject[len(subject)-nameSize:])
	if err != nil || len(hash) != len(p.hash) {
		return p, false
	}
	p = s.place([32]byte(hash))
	return p, p.record == subject
}
