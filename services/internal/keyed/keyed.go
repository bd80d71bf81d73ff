// Package keyed hashes fingerprints with a secret (HMAC), like FingerprintSecret of
// httponce.Config.
package keyed

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Fingerprint returns the HMAC-SHA-256 of a fingerprint or, without a secret, the
// fingerprint itself.
func Fingerprint(secret, fingerprint []byte) []byte {
	if secret == nil {
		return fingerprint
	}
	h := hmac.New(sha256.New, secret)
	h.Write(fingerprint)
	return h.Sum(nil)
}
