package httponce

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// CanonicalJSON is a Config.Fingerprint for JSON bodies, which are compared by
// meaning: the order of members, white space and the ways to write a
// character or a number do not matter. fields are JSON Pointers of what counts; none:
// all. Method, path, query and content type count as they do by default. A body
// that is not JSON counts with its bytes.
func CanonicalJSON(fields ...string) func(*http.Request, []byte) []byte {
	fields = slices.Clone(fields)
	return func(r *http.Request, body []byte) []byte {
		s := takeScratch()
		defer s.giveBack()
		if sum, err := onlyonce.FingerprintJSON(body, fields...); err == nil {
			s.begin(r, "canonical JSON")
			s.text = append(s.text, sum...)
		} else {
			s.begin(r, "bytes")
			s.text = append(s.text, body...)
		}
		return bytes.Clone(s.fingerprint())
	}
}

// NoFingerprint is a Config.Fingerprint that compares nothing: whoever sends a
// used key gets its answer.
func NoFingerprint(*http.Request, []byte) []byte { return nil }

// fingerprintVersion is another when requests are compared in another way.
const fingerprintVersion = 1

// begin makes the scratch's text what is to be the same in a repeat but for the
// body; how says in what way that follows.
func (s *scratch) begin(r *http.Request, how string) {
	t := append(s.text[:0], fingerprintVersion)
	t = appendPart(t, how)
	t = appendPart(t, r.Method)
	t = appendPart(t, r.URL.Path)
	t = appendPart(t, r.URL.RawPath)
	t = s.appendQuery(t, r.URL.RawQuery)
	types := r.Header["Content-Type"]
	t = binary.AppendUvarint(t, uint64(len(types)))
	for _, ct := range types {
		t = appendPart(t, ct)
	}
	s.text = t
}

// keyed returns what is stored of a fingerprint.
func (c *Config) keyed(fingerprint []byte) []byte {
	if c.FingerprintSecret == nil || fingerprint == nil {
		return fingerprint
	}
	h := hmac.New(sha256.New, c.FingerprintSecret)
	h.Write(fingerprint)
	return h.Sum(nil)
}

// fingerprint returns the hash of the text. The next call overwrites it.
func (s *scratch) fingerprint() []byte {
	s.sum = sha256.Sum256(s.text)
	return s.sum[:]
}

// appendQuery appends the query's parameters in the order of their names;
// those of one name keep theirs.
func (s *scratch) appendQuery(t []byte, query string) []byte {
	if strings.IndexByte(query, '&') < 0 {
		return appendPart(t, query)
	}
	s.query = s.query[:0]
	for p := range strings.SplitSeq(query, "&") {
		s.query = append(s.query, p)
	}
	slices.SortStableFunc(s.query, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return cmp.Compare(a, b)
	})
	t = binary.AppendUvarint(t, uint64(len(query)))
	for _, p := range s.query {
		t = append(append(t, p...), '&')
	}
	return t
}

func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}
