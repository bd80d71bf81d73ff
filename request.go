package onlyonce

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// An ID identifies one command by its tenant, its operation and the key that
// the caller chose. Each part has at most 1024 bytes. Leave Tenant or Operation empty
// only on purpose: an empty Tenant puts all callers into one namespace.
type ID struct{ Tenant, Operation, Key string }

// Hash returns the SHA-256 over the length-prefixed parts of the ID. Two IDs
// have the same hash only if all three parts have the same bytes, so a store
// may use the hash as its primary key whatever its collation.
func (id ID) Hash() [sha256.Size]byte {
	var fixed [256]byte
	b := fixed[:0]
	for _, s := range [...]string{id.Tenant, id.Operation, id.Key} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	return sha256.Sum256(b)
}

// HexHash returns the Hash in lower-case hexadecimal, 64 digits. Its first 16 are the
// record_id of a log; a Filter finds a record by any beginning of it.
func (id ID) HexHash() string {
	hash := id.Hash()
	return hex.EncodeToString(hash[:])
}

// A Request is a caller's request for a command, with the fingerprint that its
// repeats must match.
type Request struct {
	ID ID

	// Fingerprint is a hash of everything that must be the same in a repeat:
	// see the function of the same name. A Request without a Fingerprint is an
	// error, unless SkipFingerprint is set.
	Fingerprint []byte

	// SkipFingerprint turns off the comparison: every caller that uses the ID
	// gets its response, whatever else is in the request. Fingerprint must then
	// be nil. If the first request for a command sets SkipFingerprint, its
	// record has no fingerprint, and later requests for it are not compared
	// either.
	SkipFingerprint bool

	// Summary tells operators what the request was about, such as the customer and the
	// amount, so that they know what to look for when the outcome is unknown. The claim
	// stores it, so it survives a crash. Anyone who can read the store can read it: leave
	// secrets out. At most LongestSummary bytes. Empty: the record has none.
	Summary string

	Wait  time.Duration // how long this caller waits for a running attempt; 0: Config.Wait; negative: not at all
	Lease time.Duration // how long this attempt's hold lasts without renewal; at least 10ms; 0: Config.Lease
	Keep  time.Duration // how long the record stays once this attempt has settled, or KeepForever; 0: Config.Keep

	// Remember is how long the ID is remembered once this attempt has settled, or KeepForever.
	// It must not be shorter than the Keep. 0: Config.Remember.
	Remember time.Duration
}

// LongestSummary is how many bytes a Request.Summary may have.
const LongestSummary = 1024

// check rejects an invalid Request before anything is claimed. The error says
// what to write instead.
func (r *Request) check(cfg *Config) error {
	if r.ID.Key == "" {
		return errors.New("onlyonce: the Request's ID has no Key: without one, a repeat cannot be distinguished from a new command")
	}
	for _, part := range [...]string{r.ID.Tenant, r.ID.Operation, r.ID.Key} {
		if len(part) > defaults.LongestIDPart {
			return fmt.Errorf("onlyonce: a part of the Request's ID has %d bytes: use at most %d, or a hash", len(part), defaults.LongestIDPart)
		}
	}
	if err := checkFingerprint("Request", r.Fingerprint, r.SkipFingerprint); err != nil {
		return fmt.Errorf("onlyonce: %w", err)
	}
	if len(r.Summary) > LongestSummary {
		return fmt.Errorf("onlyonce: Request.Summary has %d bytes: use at most %d", len(r.Summary), LongestSummary)
	}
	if r.Lease != 0 && r.Lease < defaults.ShortestLease {
		return fmt.Errorf("onlyonce: Request.Lease is %v: set it to at least %v, or leave it 0 for the Guard's", r.Lease, defaults.ShortestLease)
	}
	err := checkKeep("Request", r.Keep)
	if err == nil {
		err = checkRemember("Request", r.Remember, cmp.Or(r.Keep, cfg.Keep))
	}
	if err != nil {
		return fmt.Errorf("onlyonce: %w", err)
	}
	return nil
}

// checkFingerprint rejects a combination that leaves open whether requests are
// compared.
func checkFingerprint(of string, fingerprint []byte, skip bool) error {
	switch {
	case len(fingerprint) == 0 && !skip:
		return fmt.Errorf("the %[1]s has no Fingerprint: set %[1]s.Fingerprint to onlyonce.Fingerprint(body), or set %[1]s.SkipFingerprint to accept any request under this ID", of)
	case fingerprint != nil && skip:
		return fmt.Errorf("the %[1]s has both a Fingerprint and SkipFingerprint: leave out one of them", of)
	}
	return nil
}

// Fingerprint returns the SHA-256 over the length-prefixed parts. Dividing the
// same bytes differently into parts gives a different fingerprint.
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
