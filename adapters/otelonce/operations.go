package otelonce

import (
	"strings"
	"unicode/utf8"
)

// longestOperation is how many bytes an operation in an attribute may have.
const longestOperation = 128

// operations limits the values of onlyonce.operation.
type operations struct {
	most  int
	names map[string]bool
}

// label returns the value for an operation.
func (o *operations) label(name string) string {
	switch {
	case o.names[name]:
		return name
	case name == Other, len(name) > longestOperation, !utf8.ValidString(name), len(o.names) == o.most:
		return Other
	}
	name = strings.Clone(name) // it may be part of a request
	o.names[name] = true
	return name
}
