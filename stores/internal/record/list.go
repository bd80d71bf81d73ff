package record

import (
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

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
