package canonical

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// PointerTokens returns the names and indexes of which each JSON Pointer
// consists.
func PointerTokens(pointers []string) [][]string {
	all := make([][]string, len(pointers))
	for i, p := range pointers {
		all[i] = strings.Split(p, "/")[1:]
		for k, token := range all[i] {
			all[i][k] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		}
	}
	return all
}

// A caseScan searches valid JSON for differences that canonical form removes, but
// that a server may see. A server that ignores the case of names uses the last of
// several members, and canonical form loses their order. A server that reads
// integers exactly and other numbers as doubles takes long numbers for different
// ones, depending on how they are written.
type caseScan struct {
	doc   []byte
	names []uint64 // hashes of the names of the objects that are open, in folded case
	ways  [][]string
	found bool
}

// HasTwoReadings reports whether an object of a valid document has two names
// that differ only in case, or whether there is a number beyond 2^53 that has a
// point or an exponent. If there are fields, as PointerTokens returns them, only
// the values that they select count, and names that lead to a field but differ from its
// own in case.
func HasTwoReadings(doc []byte, fields [][]string) bool {
	s := caseScan{doc: doc}
	s.value(0, fields, len(fields) == 0)
	return s.found
}

// value scans the value at i and returns where it ends. ways are the remaining
// tokens of the fields that lead on from there. A value that counts is scanned
// completely.
func (s *caseScan) value(i int, ways [][]string, counts bool) int {
	for _, way := range ways {
		counts = counts || len(way) == 0
	}
	i = s.skipSpace(i)
	switch s.doc[i] {
	case '{':
		return s.object(i+1, ways, counts)
	case '[':
		return s.array(i+1, ways, counts)
	case '"':
		return s.text(i)
	}
	start := i
	for i < len(s.doc) && strings.IndexByte(",]} \t\r\n", s.doc[i]) < 0 {
		i++
	}
	s.found = s.found || counts && isRounded(s.doc[start:i])
	return i
}

// isRounded reports whether a literal is a number that a double may not represent
// exactly and that is written so that it is read as a double.
func isRounded(literal []byte) bool {
	if b := literal[0]; b != '-' && (b < '0' || b > '9') || !bytes.ContainsAny(literal, ".eE") {
		return false
	}
	f, _ := strconv.ParseFloat(string(literal), 64) // beyond its range, it is infinite
	return math.Abs(f) > 1<<53-1
}

func (s *caseScan) object(i int, ways [][]string, counts bool) int {
	first, firstWay := len(s.names), len(s.ways)
	for i = s.skipSpace(i); s.doc[i] != '}'; i = s.next(i) {
		end := s.text(i)
		if counts {
			s.names = append(s.names, s.foldedHash(i, end))
		}
		if len(ways) > 0 {
			s.follow(ways, s.unquoted(i, end), true)
		}
		i = s.value(s.skipSpace(end)+1, s.ways[firstWay:], counts) // after the colon
		s.ways = s.ways[:firstWay]
	}
	s.found = s.found || hasTwins(s.names[first:])
	s.names = s.names[:first]
	return i + 1
}

func hasTwins(names []uint64) bool {
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return true
		}
	}
	return false
}

func (s *caseScan) array(i int, ways [][]string, counts bool) int {
	firstWay := len(s.ways)
	i = s.skipSpace(i)
	for n := 0; s.doc[i] != ']'; n++ {
		if len(ways) > 0 {
			s.follow(ways, strconv.Itoa(n), false)
		}
		i = s.next(s.value(i, s.ways[firstWay:], counts))
		s.ways = s.ways[:firstWay]
	}
	return i + 1
}

// follow appends the paths that continue with a name or an index.
func (s *caseScan) follow(ways [][]string, name string, ofObject bool) {
	for _, way := range ways {
		switch {
		case len(way) == 0:
		case way[0] == name:
			s.ways = append(s.ways, way[1:])
		case ofObject && strings.EqualFold(way[0], name):
			s.found = true
		}
	}
}

// next returns where the next member or element begins, or where the last ends.
func (s *caseScan) next(i int) int {
	if i = s.skipSpace(i); s.doc[i] == ',' {
		return s.skipSpace(i + 1)
	}
	return i
}

func (s *caseScan) skipSpace(i int) int {
	for i < len(s.doc) && s.doc[i] <= ' ' {
		i++
	}
	return i
}

// text returns where the string at i ends.
func (s *caseScan) text(i int) int {
	for i++; s.doc[i] != '"'; i++ {
		if s.doc[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquoted returns the value of the string from i to end.
func (s *caseScan) unquoted(i, end int) string {
	quoted := s.doc[i:end]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // it is valid
	return name
}

// foldedHash returns the FNV-1a hash of the name from i to end, ignoring case. A
// collision only makes a comparison stricter.
func (s *caseScan) foldedHash(i, end int) uint64 {
	const basis, prime = 14695981039346656037, 1099511628211
	h := uint64(basis)
	for _, c := range s.doc[i+1 : end-1] {
		if c == '\\' || c >= utf8.RuneSelf {
			h = basis
			for _, r := range s.unquoted(i, end) {
				h = (h ^ uint64(foldedRune(r))) * prime // a rune of a string is not negative
			}
			return h
		}
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		h = (h ^ uint64(c)) * prime
	}
	return h
}

// foldedRune returns the least of the runes that differ from r in case only, as
// strings.EqualFold compares them.
func foldedRune(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return least
}
