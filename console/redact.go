package console

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// secretNames are the names of members, headers and fields whose values are never shown.
var secretNames = []string{
	"password", "passwd", "passphrase", "secret", "token", "api_key", "private_key", "access_key", "credential",
	"authorization", "cookie", "session_id", "signature", "card_number", "account_number", "cvv", "cvc", "pin", "ssn", "iban",
}

// redacted stands for a value that is not shown.
const redacted = "•••"

// A redaction says which values are not shown.
type redaction struct {
	pointers [][]string // of JSON values, by their steps; "*" is any step
	names    []string   // in the form of plainName
	text     *regexp.Regexp
}

// newRedaction returns the redaction of secretNames and of rules: JSON Pointers, which
// begin with a slash, and names.
func newRedaction(rules []string) (*redaction, error) {
	var r redaction
	var forms []string
	for _, rule := range append(append([]string{}, secretNames...), rules...) {
		if pointer, ok := strings.CutPrefix(rule, "/"); ok {
			steps := strings.Split(pointer, "/")
			for i, step := range steps {
				steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
			}
			r.pointers = append(r.pointers, steps)
			continue
		}
		name := plainName(rule)
		if name == "" {
			return nil, fmt.Errorf("%q is neither a name nor a JSON Pointer: write a name such as card_number, or a pointer such as /customer/email", rule)
		}
		r.names = append(r.names, name)
		forms = append(forms, textForm(name))
	}
	r.text = regexp.MustCompile(`(?i)((?:^|[^\pL\pN])(?:` + strings.Join(forms, "|") + `)["']?\s*[:=>]\s*)[^\n&<]+`)
	return &r, nil
}

// textForm is a pattern of a name in a text: other characters may stand between its own.
// Like hasName, it also matches longer names.
func textForm(name string) string {
	letters := strings.Split(name, "")
	for i, letter := range letters {
		letters[i] = regexp.QuoteMeta(letter)
	}
	form := strings.Join(letters, `[-_. ]?`)
	if len(letters) < shortestPart {
		return form
	}
	return `[\pL\pN_.-]*` + form + `[\pL\pN_.-]*`
}

// plainName is a name without case and punctuation: api_key, API-Key and apiKey are one.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

// shortestPart is the length of the shortest name that longer names may contain.
const shortestPart = 4

// hasName reports whether the value of a name is not shown: the name is in the list, or
// contains one that is not too short for that.
func (r *redaction) hasName(name string) bool {
	name = plainName(name)
	for _, secret := range r.names {
		if name == secret || len(secret) >= shortestPart && strings.Contains(name, secret) {
			return true
		}
	}
	return false
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

func matches(pointer, path []string) bool {
	for i, step := range pointer {
		if step != "*" && step != path[i] {
			return false
		}
	}
	return true
}

// line hides what follows the names in a text, up to the end of the line or the field.
func (r *redaction) line(text string) string {
	return r.text.ReplaceAllString(text, "${1}"+redacted)
}
