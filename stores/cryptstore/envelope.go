package cryptstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/envelope"
)

// An envelope is stored in place of a value:
//
//	magic       3 bytes, envelope.Magic
//	version     1 byte
//	flags       1 byte
//	key ID      1 byte for its length, then the ID
//	key check   8 bytes, by which a key is told from another one with the same ID
//	nonce       24 bytes, random
//	ciphertext  with a tag of 16 bytes
//
// The bytes before the nonce are the header. It is authenticated together with the place of the
// value and the data that belongs to it.
const (
	magic   = envelope.Magic
	version = 1
)

// The flags of an envelope.
const (
	flagCompressed = 1 << iota
	flagRemoved    // there is no value any more: the step could not be read, and an attempt that took over the record has removed it

	knownFlags = flagCompressed | flagRemoved
)

// A damage is an ErrCorrupt whose text describes the damage to a value.
type damage string

func (d damage) Error() string { return string(d) }

// Is makes a damage match ErrCorrupt.
func (d damage) Is(target error) bool { return target == onlyonce.ErrCorrupt }

// ErrNotEncrypted says that a record has a value that is not encrypted, and so was probably stored
// before its store was. The record is not corrupt: its command is neither replayed nor run again.
var ErrNotEncrypted = errors.New("the record is not encrypted: if it was stored before the store was encrypted, set AcceptPlaintext (--accept-plaintext)")

// The kinds of damage to a value.
const (
	errHeader   = damage("it has a header that is not encrypted")
	errReplaced = damage("it was replaced by one that is not encrypted")
	errCut      = damage("it is cut off")
	errChanged  = damage("it was changed, or it belongs to something else")
	errExpanded = damage("it can't be decompressed")
	errPayload  = damage("it is not a result")
)

// errNewer is the error for an envelope of a version that this package does not know. Its
// record is not corrupt.
var errNewer = errors.New("the record was written by a newer version: upgrade this program")

// A place is where a value belongs. A value that is found at another place is corrupt.
type place struct {
	id    onlyonce.ID
	field string   // result, error, summary or step
	with  []string // the step's name, or the part of a settlement
}

// associated returns the additional data of the envelope at the place: its parts with their
// lengths before them.
func (p *place) associated(header []byte) []byte {
	n := len(header)
	parts := append([]string{"onlyonce cryptstore", p.id.Tenant, p.id.Operation, p.id.Key, p.field}, p.with...)
	for _, s := range parts {
		n += 8 + len(s)
	}
	b := make([]byte, 0, n+8)
	for _, s := range parts {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint64(b, uint64(len(header))), header...)
}

// isEnvelope reports whether a value begins as an envelope of any version.
func isEnvelope(b []byte) bool { return bytes.HasPrefix(b, []byte(magic)) }

// seal returns the envelope with a value.
func (c *Cipher) seal(k *readyKey, p place, plain []byte) []byte {
	var flags byte
	if !c.noCompression {
		if smaller, ok := compress(plain); ok {
			plain, flags = smaller, flagCompressed
		}
	}
	return k.seal(p, plain, flags)
}

func (k *readyKey) seal(p place, plain []byte, flags byte) []byte {
	b := make([]byte, 0, len(magic)+3+len(k.id)+checkSize+nonceSize+len(plain)+tagSize)
	b = append(append(append(b, magic...), version, flags, byte(len(k.id))), k.id...)
	b = append(b, k.check[:]...)
	header := len(b)
	b = b[:header+nonceSize]
	rand.Read(b[header:]) // never fails
	return k.xaes.seal(b, b[header:], plain, p.associated(b[:header]))
}

// open returns the value in an envelope; removed means that there is none any more. An error
// that is not an ErrCorrupt says nothing about the envelope.
func (c *Cipher) open(ctx context.Context, p place, b []byte) (plain []byte, removed bool, err error) {
	const fixed = len(magic) + 3
	switch {
	case !isEnvelope(b):
		return nil, false, ErrNotEncrypted
	case len(b) > len(magic) && b[len(magic)] != version:
		return nil, false, errNewer
	case len(b) < fixed || len(b) < fixed+int(b[fixed-1])+checkSize+nonceSize+tagSize:
		return nil, false, errCut
	}
	flags, check := b[fixed-2], fixed+int(b[fixed-1])
	id, header := string(b[fixed:check]), check+checkSize
	if flags&^knownFlags != 0 || !validKeyID(id) {
		return nil, false, errChanged
	}
	k, err := c.keys.get(ctx, id)
	if err != nil {
		return nil, false, err
	}
	of, isOther := b[:header], !bytes.Equal(b[check:header], k.check[:])
	if isOther { // either the key or the check value is wrong
		of = append(slices.Clone(b[:check]), k.check[:]...)
	}
	plain, err = k.xaes.open(b[header:][:nonceSize], b[header+nonceSize:], p.associated(of))
	switch {
	case err != nil && isOther:
		return nil, false, fmt.Errorf("the key %q has other bytes than the one with which the record was encrypted: %w", id, ErrUnknownKey)
	case err != nil, isOther:
		return nil, false, errChanged
	}
	if flags&flagCompressed != 0 {
		plain, err = decompress(plain)
	}
	return plain, flags&flagRemoved != 0, err
}

// text is how an envelope is written where a store has text.
var text = base64.RawURLEncoding

// sealText returns the envelope with a text, which is never empty, as text.
func (c *Cipher) sealText(k *readyKey, p place, plain string) string {
	if plain == "" {
		return ""
	}
	return text.EncodeToString(c.seal(k, p, []byte(plain)))
}

func (c *Cipher) openText(ctx context.Context, p place, stored string) (string, error) {
	if stored == "" {
		return "", nil
	}
	b, err := text.DecodeString(stored)
	switch {
	case len(stored) < len(magicText) || stored[:len(magicText)] != magicText:
		return "", ErrNotEncrypted
	case err != nil, text.EncodeToString(b) != stored: // a second spelling of the same bytes
		return "", errChanged
	}
	plain, removed, err := c.open(ctx, p, b)
	if err == nil && removed {
		err = errChanged
	}
	return string(plain), err
}

// magicText is how an envelope begins as text.
var magicText = text.EncodeToString([]byte(magic))
