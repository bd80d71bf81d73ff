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
	ways := pointerTokens(fields)
	var none []byte // the fingerprint of a document with none of the fields
	if len(fields) > 0 {
		none, _ = onlyonce.FingerprintJSON([]byte("{}"), fields...) // what is wrong with a field is wrong with every document
	}
	return func(r *http.Request, body []byte) []byte {
		s := takeBuffers()
		defer s.giveBack()
		if sum, err := onlyonce.FingerprintJSON(body, fields...); err == nil && !bytes.Equal(sum, none) && !hasTwoReadings(body, ways) {
			s.begin(r, "canonical JSON")
			s.text = append(s.text, sum...)
		} else {
			s.begin(r, "bytes")
			s.text = append(s.text, body...)
		}
		return bytes.Clone(s.fingerprint())
	}
}

// fingerprintVersion changes whenever the way in which requests are compared
// changes.
const fingerprintVersion = 2

// begin makes the scratch's text what is to be the same in a repeat but for the
// body; how says in what way that follows.
func (s *callBuffers) begin(r *http.Request, how string) {
	t := append(s.text[:0], fingerprintVersion)
	t = appendPart(t, how)
	t = appendPart(t, r.Method)
	t = appendPart(t, r.URL.Path)
	t = appendPart(t, r.URL.RawPath)
	t = s.appendQuery(t, r.URL.RawQuery)
	t = appendParts(t, r.Header["Content-Type"])
	s.text = appendParts(t, r.Header["Content-Encoding"])
}

// comparesNothing reports whether a used key is enough to get its response.
func (c *Config) comparesNothing() bool { return c.SkipFingerprint && len(c.FingerprintHeaders) == 0 }

// withHeaders adds to a fingerprint the headers that have to be the same.
func (c *Config) withHeaders(fingerprint []byte, r *http.Request) []byte {
	if len(c.FingerprintHeaders) == 0 {
		return fingerprint
	}
	b := appendPart(nil, string(fingerprint))
	for _, name := range c.FingerprintHeaders {
		values := r.Header[name]
		if name == "Host" {
			values = []string{strings.ToLower(r.Host)}
		}
		b = appendParts(appendPart(b, name), values)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// keyed returns what is stored of a fingerprint.
func (c *Config) keyed(fingerprint []byte) []byte {
	if c.FingerprintSecret == nil {
		return fingerprint
	}
	h := hmac.New(sha256.New, c.FingerprintSecret)
	h.Write(fingerprint)
	return h.Sum(nil)
}

// fingerprint returns the hash of the text. The next call overwrites it.
func (s *callBuffers) fingerprint() []byte {
	s.sum = sha256.Sum256(s.text)
	return s.sum[:]
}

// appendQuery appends the query's parameters in the order of their names. Those
// whose names a server may take for the same keep theirs, and so do all if it can't
// be told what a server takes a name for.
func (s *callBuffers) appendQuery(t []byte, query string) []byte {
	if strings.IndexByte(query, '&') < 0 || strings.IndexByte(query, ';') >= 0 {
		return appendPart(append(t, 0), query)
	}
	s.query = s.query[:0]
	dots, brackets := false, false
	for p := range strings.SplitSeq(query, "&") {
		name, ok := parameterName(p)
		if !ok {
			return appendPart(append(t, 0), query)
		}
		dots = dots || strings.IndexByte(name, '.') >= 0
		brackets = brackets || strings.HasPrefix(p[len(name):], "[")
		s.query = append(s.query, parameter{name, p})
	}
	if dots && brackets { // a.b and a[b] may be the same
		return appendPart(append(t, 0), query)
	}
	slices.SortStableFunc(s.query, func(a, b parameter) int { return compareNames(a.name, b.name) })
	t = binary.AppendUvarint(append(t, 1), uint64(len(query)))
	for _, p := range s.query {
		t = append(append(t, p.text...), '&')
	}
	return t
}

// A parameter of a query, and its name as far as the first bracket.
type parameter struct{ name, text string }

// parameterName is not ok if a server may decode the name.
func parameterName(p string) (name string, ok bool) {
	name, _, _ = strings.Cut(p, "=")
	for i := range len(name) {
		if c := name[i]; !isLower(c|0x20) && !isDigit(c) && strings.IndexByte("-_.[]", c) < 0 {
			return "", false
		}
	}
	name, rest, bracketed := strings.Cut(name, "[")
	return name, !bracketed || strings.IndexByte(rest, ']') >= 0 // PHP makes an underscore of one that stays open
}

// compareNames is 0 for names that are one to some servers: ASP.NET does not mind
// the case, and PHP makes an underscore of a dot.
func compareNames(a, b string) int {
	for i := range min(len(a), len(b)) {
		if n := cmp.Compare(plainNameByte(a[i]), plainNameByte(b[i])); n != 0 {
			return n
		}
	}
	return cmp.Compare(len(a), len(b))
}

func plainNameByte(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c == '.':
		return '_'
	}
	return c
}

func appendParts(b []byte, parts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for _, part := range parts {
		b = appendPart(b, part)
	}
	return b
}

func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}
