package bearer

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// A Source reads a JWKS document.
type Source func(context.Context) ([]byte, error)

const (
	readWithin = 10 * time.Second // a document must be there
	askAgain   = 10 * time.Second // shortest time between reloads for unknown key IDs
	tryAgain   = time.Minute      // between reloads while they fail
	grace      = time.Hour        // for which keys stay valid after the time of a reload that failed
	leastRSA   = 2048             // bits
)

// Keys are the public keys of a JWKS document, which is reloaded regularly, and every
// minute while that fails. If it could not be reloaded for an hour, there are no keys.
type Keys struct {
	source  Source
	refresh time.Duration
	log     *slog.Logger

	reading sync.Mutex // one reads at a time; before mu
	asked   time.Time  // when a reading last began
	failed  bool       // that reading

	mu    sync.Mutex
	keys  []jose.JSONWebKey
	until time.Time // the keys are valid
}

// Read returns the keys of a document, which it reads.
func Read(ctx context.Context, source Source, refresh time.Duration, log *slog.Logger) (*Keys, error) {
	k := &Keys{source: source, refresh: refresh, log: log}
	k.reading.Lock()
	defer k.reading.Unlock()
	return k, k.read(ctx)
}

// read reads the document; the caller has the lock for that.
func (k *Keys) read(ctx context.Context) error {
	k.asked, k.failed = time.Now(), true
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	text, err := k.source(ctx)
	if err != nil {
		return fmt.Errorf("read the public keys: %w", err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("read the public keys: %w", err)
	}
	k.failed = false
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.until = keys, time.Now().Add(k.refresh+grace)
	return nil
}

// Refresh reads the document now. If that fails, the keys stay as they are.
func (k *Keys) Refresh(ctx context.Context) error {
	k.reading.Lock()
	defer k.reading.Unlock()
	return k.read(ctx)
}

// Run reloads the document at its intervals until ctx ends.
func (k *Keys) Run(ctx context.Context) {
	tick := time.NewTicker(min(k.refresh, tryAgain))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := k.readIfDue(ctx); err != nil && ctx.Err() == nil {
				k.log.Error("the public keys could not be reloaded, and no token is accepted after the time in until: the next attempt is in a minute", "until", k.known(), "error", err)
			}
		}
	}
}

// readIfDue reads the document if it is time for that, or if the last reading failed:
// one failure must not use up all of the grace period.
func (k *Keys) readIfDue(ctx context.Context) error {
	k.reading.Lock()
	defer k.reading.Unlock()
	if !k.failed && time.Since(k.asked) < k.refresh-tryAgain/2 { // half of the time by which a tick may be early or late
		return nil
	}
	return k.read(ctx)
}

// known returns until when the keys are valid.
func (k *Keys) known() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// For returns the keys that may verify a token with a key ID and an algorithm. For an
// unknown key ID, the document is reloaded, at most once per askAgain.
func (k *Keys) For(name, algorithm string) ([]jose.JSONWebKey, error) {
	found, err := k.find(name, algorithm)
	if err != nil || len(found) > 0 || name == "" || !k.reading.TryLock() {
		return found, err
	}
	defer k.reading.Unlock()
	if time.Since(k.asked) < askAgain {
		return nil, nil
	}
	if err := k.read(context.Background()); err != nil {
		return nil, err
	}
	return k.find(name, algorithm)
}

func (k *Keys) find(name, algorithm string) (found []jose.JSONWebKey, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Now().After(k.until) {
		return nil, errors.New("the public keys could not be reloaded for too long: no token is accepted")
	}
	for _, key := range k.keys {
		if (name == "" || key.KeyID == name) && (key.Algorithm == "" || key.Algorithm == algorithm) && fits(key.Key, algorithm) {
			found = append(found, key)
		}
	}
	return found, nil
}

// parseKeys returns the public keys of a document. Keys that it can't use are ignored, as
// RFC 7517 requires. A secret key in the document is an error of its publisher.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var doc struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("the document is not a JWKS document: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range doc.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		if _, secret := key.Key.([]byte); !secret && !key.Valid() {
			continue
		}
		switch public := key.Key.(type) {
		case *rsa.PublicKey:
			if public.N.BitLen() < leastRSA {
				continue
			}
		case *ecdsa.PublicKey, ed25519.PublicKey:
		default:
			return nil, errors.New("the document contains a secret key: publish only its public half")
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("the document contains no public key for signatures (RSA of 2048 bits or more, EC, Ed25519)")
	}
	return keys, nil
}

// fits reports whether a key is of the kind that an algorithm takes.
func fits(key any, algorithm string) bool {
	switch key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return strings.HasPrefix(algorithm, "ES")
	}
	return algorithm == string(jose.EdDSA)
}
