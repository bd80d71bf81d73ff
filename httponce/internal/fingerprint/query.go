package fingerprint

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// mostSorted is how many parameters are sorted. A parameter takes much more memory than its text,
// which may be a single byte, and a client chooses how many there are.
const mostSorted = 1000

// appendQuery appends the query's parameters in the order of their names. The
// order stays among names that a server may treat as the same, and among all of
// them if it can't be told how a server reads a name, or if there are many.
func (ps *parameters) appendQuery(t []byte, query string) []byte {
	separators := strings.Count(query, "&")
	if separators == 0 || separators >= mostSorted || strings.IndexByte(query, ';') >= 0 {
		return appendPart(append(t, 0), query)
	}
	*ps = (*ps)[:0]
	dots, brackets := false, false
	for p := range strings.SplitSeq(query, "&") {
		name, ok := parameterName(p)
		if !ok {
			return appendPart(append(t, 0), query)
		}
		dots = dots || strings.IndexByte(name, '.') >= 0
		brackets = brackets || strings.HasPrefix(p[len(name):], "[")
		*ps = append(*ps, parameter{name, p})
	}
	if dots && brackets { // a.b and a[b] may be the same
		return appendPart(append(t, 0), query)
	}
	slices.SortStableFunc(*ps, func(a, b parameter) int { return compareNames(a.name, b.name) })
	t = binary.AppendUvarint(append(t, 1), uint64(len(query)))
	for _, p := range *ps {
		t = append(append(t, p.text...), '&')
	}
	return t
}

// parameters are those of a query. Their memory is used again.
type parameters []parameter

// A parameter of a query, and its name as far as the first bracket.
type parameter struct{ name, text string }

// parameterName returns the name of a parameter. It is not ok if a server may
// decode the name, or may leave out a bracket or a dot at its beginning or end.
func parameterName(p string) (name string, ok bool) {
	name, _, _ = strings.Cut(p, "=")
	for i := range len(name) {
		if c := name[i]; !isLetterOrDigit(c) && strings.IndexByte("-_.[]", c) < 0 {
			return "", false
		}
	}
	if i := strings.IndexAny(name, "[]"); i == 0 || i > 0 && name[i] == ']' || strings.HasPrefix(name, ".") {
		return "", false // qs reads [a] and, if it allows dots, .a as a, and Rack 2 reads a] so
	}
	name, rest, bracketed := strings.Cut(name, "[")
	return name, !bracketed || strings.IndexByte(rest, ']') >= 0 // PHP makes an underscore of one that stays open
}

// compareNames returns 0 for names that some servers treat as the same: ASP.NET
// ignores case, and PHP replaces a dot by an underscore.
func compareNames(a, b string) int {
	for i := range min(len(a), len(b)) {
		if n := cmp.Compare(plainNameByte(a[i]), plainNameByte(b[i])); n != 0 {
			return n
		}
	}
	return cmp.Compare(len(a), len(b))
}

func isLetterOrDigit(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
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
