package record

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// ListStatement returns the name of the statement that lists the records of a filter, and the
// first and the last id that it asks for: the statement "list by id" has two parameters more.
func ListStatement(f onlyonce.Filter) (name string, ids [][]byte) {
	switch {
	case f.IDPrefix != "":
		return "list by id", idRange(f.IDPrefix)
	case f.Unresolved:
		return "list unresolved", nil
	case f.State == onlyonce.StateProcessing:
		return "list processing", nil
	}
	return "list", nil
}

// idRange returns the first and the last id that begins with a prefix. If none does, the
// first is behind the last.
func idRange(prefix string) [][]byte {
	const digits = 2 * sha256.Size
	rest := digits - len(prefix)
	if rest >= 0 && prefix == strings.ToLower(prefix) {
		first, err := hex.DecodeString(prefix + strings.Repeat("0", rest))
		last, _ := hex.DecodeString(prefix + strings.Repeat("f", rest))
		if err == nil {
			return [][]byte{first, last}
		}
	}
	return [][]byte{{1}, {0}}
}

// List puts the conditions of a filter into the statement "list", in the place of {filter}.
// Only those that are set are there, because a condition on a parameter that may be
// empty keeps a database from using an index. List returns the text and the values of
// its further parameters. mark returns how the statement names its nth parameter.
//
// The indexes leave out records without a tenant or operation, and a database
// needs to be told that none of those is asked for.
func List(text string, f onlyonce.Filter, mark func(n int) string, n int) (whole string, values []string) {
	var b strings.Builder
	for _, c := range [...]struct{ column, value, indexed string }{
		{"tenant", f.Tenant, " AND tenant <> ''"},
		{"operation", f.Operation, " AND operation <> ''"},
		{"idem_key", f.Key, ""},
		{"result_ref", f.Ref, ""},
	} {
		if c.value != "" {
			b.WriteString(" AND " + c.column + " = " + mark(n+len(values)) + c.indexed)
			values = append(values, c.value)
		}
	}
	return strings.Replace(text, "{filter}", b.String(), 1), values
}
