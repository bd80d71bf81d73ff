// Package fingerprint writes the parts of a request that must be the same in a repeat, and
// finds JSON documents that servers may read in different ways although their
// canonical form is the same.
package fingerprint

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"
)

// version changes whenever the way in which requests are compared changes.
const version = 3

// A Scratch is memory that is used for one request after another.
type Scratch struct {
	query parameters
	sum   [sha256.Size]byte
}

// Clear drops all data of a request.
func (s *Scratch) Clear() {
	clear(s.query)
	clear(s.sum[:])
}

// AppendRequest appends the parts of the request that must be the same in a repeat to t, except the body.
// how names the way in which the body is compared.
func (s *Scratch) AppendRequest(t []byte, r *http.Request, how string) []byte {
	t = append(t, version)
	t = appendPart(t, how)
	t = appendPart(t, r.Method)
	t = appendPart(t, r.URL.Path)
	t = appendPart(t, r.URL.RawPath)
	t = appendPart(t, strippedPrefix(r))
	t = s.query.appendQuery(t, r.URL.RawQuery)
	t = appendParts(t, r.Header["Content-Type"])
	return appendParts(t, r.Header["Content-Encoding"])
}

// strippedPrefix returns the beginning of the client's path that r's does not have because a
// handler removed it, as http.StripPrefix does, or "".
func strippedPrefix(r *http.Request) string {
	sent, _, _ := strings.Cut(r.RequestURI, "?")
	if sent == r.URL.Path || sent == "" {
		return ""
	}
	u, err := url.ParseRequestURI(sent)
	if err != nil {
		return ""
	}
	prefix, found := strings.CutSuffix(u.Path, r.URL.Path)
	if !found || strings.Contains(prefix+"/", "/./") || strings.Contains(prefix+"/", "/../") {
		return "" // the path was changed in another way, such as by resolving dot segments
	}
	return prefix
}

// Sum returns the hash of t. The next call and Clear overwrite it.
func (s *Scratch) Sum(t []byte) []byte {
	s.sum = sha256.Sum256(t)
	return s.sum[:]
}

// WithHeaders returns a hash over a fingerprint and the values that r has of the
// named headers. "Host" is the request's host, without regard to case.
func WithHeaders(fingerprint []byte, names []string, r *http.Request) []byte {
	b := appendPart(nil, string(fingerprint))
	for _, name := range names {
		values := r.Header[name]
		if name == "Host" {
			values = []string{strings.ToLower(r.Host)}
		}
		b = appendParts(appendPart(b, name), values)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// Keyed returns the HMAC of a fingerprint.
func Keyed(fingerprint, secret []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(fingerprint)
	return h.Sum(nil)
}
