package record

import (
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// List completes the statement "list", which has {filter} where the conditions
// of a filter go, with those that are set: a condition on a parameter that may be
// empty keeps a database from using an index. It returns the text and the values
// of its further parameters. mark is the nth parameter of the statement.
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
