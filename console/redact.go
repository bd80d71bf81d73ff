package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/secretname"
)

// A redaction says which values are not shown.
type redaction struct {
	pointers [][]string // of JSON values, by their steps; "*" is any step
	names    []string   // in the form of secretname.Plain
}

// newRedaction returns the redaction of secretname.Names and of rules: JSON Pointers, which
// begin with a slash, and names.
func newRedaction(rules []string) (*redaction, error) {
	var r redaction
	for _, rule := range append(secretname.Names(), rules...) {
		if pointer, ok := strings.CutPrefix(rule, "/"); ok {
			steps := strings.Split(pointer, "/")
			for i, step := range steps {
				steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
			}
			r.pointers = append(r.pointers, steps)
			continue
		}
		name := secretname.Plain(rule)
		if name == "" {
			return nil, fmt.Errorf("%q is neither a name nor a JSON Pointer: write a name such as card_number, or a pointer such as /customer/email", rule)
		}
		r.names = append(r.names, name)
	}
	return &r, nil
}

// hasName reports whether the value of a name is not shown: the name is in the list, or
// contains one that is not too short for that.
func (r *redaction) hasName(name string) bool {
	return secretname.Matches(name, r.names)
}

// hides reports whether the JSON value at a path is not shown. The last step is the name
// of a member if isMember is set, and otherwise an index.
func (r *redaction) hides(path []string, isMember bool) bool {
	if isMember && r.hasName(path[len(path)-1]) {
		return true
	}
	for _, pointer := range r.pointers {
		if len(pointer) == len(path) && matches(pointer, path) {
			return true
		}
	}
	return false
}

// In an object such as {"name":"password","value":"x"}, one member has the name of another
// one's value. These are the usual names of both, in the form of secretname.Plain.
var (
	namingMembers = []string{"name", "key", "field", "header", "label", "id", "param", "parameter", "property", "attribute"}
	namedMembers  = []string{"value", "values", "val", "content", "text", "data"}
)

// isNaming reports whether a member of an object says that another one is a secret.
func (r *redaction) isNaming(member, value string) bool {
	return slices.Contains(namingMembers, secretname.Plain(member)) && r.hasName(value)
}

func matches(pointer, path []string) bool {
	for i, step := range pointer {
		if step != "*" && step != path[i] {
			return false
		}
	}
	return true
}
