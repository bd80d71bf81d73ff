package httponce

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/fingerprint"
	"github.com/onlyonce-go/onlyonce/internal/canonical"
)

// CanonicalJSON returns a Config.Fingerprint for JSON bodies, which compares
// them by meaning: the order of members, white space, and the spelling of
// characters and numbers do not matter. fields are JSON Pointers to the parts
// that are compared; without fields, the whole body is. Method, path, query,
// content type and content encoding are compared as by default.
//
// Some bodies are compared byte by byte: a body that is not JSON or has none of
// the fields; a body in which compared names differ only in case, or the name
// of a field is in another case, because a server that ignores case uses the
// last of such members; and a body in which a compared number is 2^53 or more
// and has a point or an exponent, because many servers round such a number.
func CanonicalJSON(fields ...string) func(*http.Request, []byte) []byte {
	fields = slices.Clone(fields)
	ways := canonical.PointerTokens(fields)
	var none []byte // the fingerprint of a document with none of the fields
	if len(fields) > 0 {
		none, _ = onlyonce.FingerprintJSON([]byte("{}"), fields...) // an invalid field is invalid for every document
	}
	return func(r *http.Request, body []byte) []byte {
		c := newCall(nil, nil, r) // for its buffers
		defer c.recycle()
		how, compared := "bytes", body
		if sum, err := onlyonce.FingerprintJSON(body, fields...); err == nil && !bytes.Equal(sum, none) && !canonical.HasTwoReadings(body, ways) {
			how, compared = "canonical JSON", sum
		}
		c.begin(r, how)
		c.text = append(c.text, compared...)
		return bytes.Clone(c.fingerprint())
	}
}

// begin replaces the text by the parts of the request that must be the same in a repeat,
// except the body, which is appended later. how names the way in which the body is compared.
func (b *buffers) begin(r *http.Request, how string) {
	b.text = b.fingerprintBuf.AppendRequest(b.text[:0], r, how)
}

// fingerprint returns the hash of the text. The next call overwrites it.
func (b *buffers) fingerprint() []byte { return b.fingerprintBuf.Sum(b.text) }

// ownFingerprint returns the fingerprint of the call, whose body has been read.
func (c *call) ownFingerprint() []byte {
	switch {
	case c.cfg.SkipFingerprint:
		return nil // only the named headers count
	case c.cfg.Fingerprint != nil:
		return c.cfg.Fingerprint(c.r, c.body)
	}
	return c.fingerprint()
}

// comparesNothing reports whether a used key is enough to get its response.
func (c *Config) comparesNothing() bool { return c.SkipFingerprint && len(c.FingerprintHeaders) == 0 }

// storedFingerprint returns a fingerprint in the form that is stored: with the headers
// that must be the same, and as an HMAC if there is a secret.
func (c *Config) storedFingerprint(of []byte, r *http.Request) []byte {
	if len(c.FingerprintHeaders) > 0 {
		of = fingerprint.WithHeaders(of, c.FingerprintHeaders, r)
	}
	if c.FingerprintSecret != nil {
		of = fingerprint.Keyed(of, c.FingerprintSecret)
	}
	return of
}
