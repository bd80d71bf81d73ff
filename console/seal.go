package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A sealer encrypts idempotency keys and positions for use in an address, where they must
// not be readable: it ends up in the history of a browser and in the logs of proxies. A
// sealed value can be opened as long as the process runs.
type sealer struct{ aead cipher.AEAD }

func newSealer() (sealer, error) {
	var key [32]byte
	rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return sealer{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}, err
}

func (s sealer) seal(purpose string, v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, []byte(purpose))), nil
}

// open reports whether text was sealed for the purpose by this process, and reads it
// into v.
func (s sealer) open(purpose, text string, v any) bool {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(purpose))
	return err == nil && json.Unmarshal(plain, v) == nil
}

// A position is where a page of a list ends.
type position struct {
	Tenant, Operation, Key []byte // bytes: a string that is not UTF-8 would change in JSON
	At                     time.Time
}

func positionOf(r onlyonce.Record) position {
	return position{Tenant: []byte(r.ID.Tenant), Operation: []byte(r.ID.Operation), Key: []byte(r.ID.Key), At: r.CreatedAt}
}

func (p position) record() onlyonce.Record {
	return onlyonce.Record{ID: onlyonce.ID{Tenant: string(p.Tenant), Operation: string(p.Operation), Key: string(p.Key)}, CreatedAt: p.At}
}
