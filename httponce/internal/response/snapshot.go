package response

import (
	"net/http"
	"slices"
)

// A Snapshot is a copy of a header at one point in time. Its memory is reused.
type Snapshot struct {
	fields []field
	values []string
}

type field struct {
	name string
	n    int // how many of the values are its own
}

// Clear drops the copy.
func (s *Snapshot) Clear() {
	clear(s.fields)
	clear(s.values)
	s.fields, s.values = s.fields[:0], s.values[:0]
}

// Take copies h.
func (s *Snapshot) Take(h http.Header) {
	s.Clear()
	for name, vs := range h {
		s.fields = append(s.fields, field{name, len(vs)})
		s.values = append(s.values, vs...)
	}
}

// equal reports whether h is unchanged since it was copied.
func (s *Snapshot) equal(h http.Header) bool {
	if len(h) != len(s.fields) {
		return false
	}
	values := s.values
	for _, f := range s.fields {
		vs, ok := h[f.name]
		if !ok || !slices.Equal(vs, values[:f.n]) {
			return false
		}
		values = values[f.n:]
	}
	return true
}

// Restore sets h to the copied headers.
func (s *Snapshot) Restore(h http.Header) {
	if s.equal(h) {
		return
	}
	clear(h)
	values := s.values
	for _, f := range s.fields {
		h[f.name] = slices.Clone(values[:f.n])
		values = values[f.n:]
	}
}

// Has reports whether the copy has the name with exactly these values.
func (s *Snapshot) Has(name string, vs []string) bool {
	copied, ok := s.get(name)
	return ok && slices.Equal(vs, copied)
}

// get returns the values of a name.
func (s *Snapshot) get(name string) (vs []string, ok bool) {
	values := s.values
	for _, f := range s.fields {
		if f.name == name {
			return values[:f.n], true
		}
		values = values[f.n:]
	}
	return nil, false
}
