package httponce

import (
	"bytes"
	"cmp"
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
			return bytes.Clone(s.fingerprint(r, "canonical JSON", sum))
		}
		return bytes.Clone(s.fingerprint(r, "bytes", body))
	}
}

// NoFingerprint is a Config.Fingerprint that compares nothing: whoever sends a
// used key gets its answer.
func NoFingerprint(*http.Request, []byte) []byte { return nil }

// fingerprint hashes what is to be the same in a repeat; how says what body is.
// The next call overwrites it.
func (s *scratch) fingerprint(r *http.Request, how string, body []byte) []byte {
	head := s.head[:0]
	head = appendPart(head, "onlyonce http v1")
	head = appendPart(head, how)
	head = appendPart(head, r.Method)
	head = appendPart(head, r.URL.Path)
	head = appendPart(head, r.URL.RawPath)
	head = s.appendQuery(head, r.URL.RawQuery)
	types := r.Header["Content-Type"]
	head = binary.BigEndian.AppendUint64(head, uint64(len(types)))
	for _, t := range types {
		head = appendPart(head, t)
	}
	s.head = head
	s.hash.Reset()
	s.hash.Write(head)
	s.hash.Write(body)
	return s.hash.Sum(s.sum[:0])
}

// appendQuery appends the query's parameters in the order of their names;
// those of one name keep theirs.
func (s *scratch) appendQuery(head []byte, query string) []byte {
	if strings.IndexByte(query, '&') < 0 {
		return appendPart(head, query)
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
	head = binary.BigEndian.AppendUint64(head, uint64(len(query)))
	for _, p := range s.query {
		head = append(append(head, p...), '&')
	}
	return head
}

func appendPart(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
}
