package conform

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// placeholder stands for a generated value.
const placeholder = "{{fresh}}"

// placeholderInURL replaces placeholder in a URL. It has no characters that are escaped
// in any part of a URL.
const placeholderInURL = "FRESH-7f1d0c"

// A bodyGenerator makes bodies that differ from each other.
type bodyGenerator struct {
	body      []byte
	fresh     string // a JSON Pointer, or ""
	generated int64
}

// newBodyGenerator returns an error if no body can be generated.
func newBodyGenerator(body []byte, fresh string) (*bodyGenerator, error) {
	m := &bodyGenerator{body: body, fresh: fresh}
	_, _, err := m.next()
	return m, err
}

// varies reports whether two bodies differ.
func (m *bodyGenerator) varies() bool {
	return m.fresh != "" || bytes.Contains(m.body, []byte(placeholder))
}

// next returns a body, and the values that were generated for it.
func (m *bodyGenerator) next() (body []byte, fresh string, err error) {
	m.generated++
	digits := randomHex(4)
	body = bytes.ReplaceAll(m.body, []byte(placeholder), []byte(digits))
	if m.fresh == "" {
		return body, digits, nil
	}
	start, end, err := findValue(body, m.fresh)
	if err != nil {
		return nil, "", err
	}
	var text string
	switch value := body[start:end]; {
	case json.Unmarshal(value, &text) == nil && value[0] == '"':
		fresh = text + "-" + digits
		value, _ = json.Marshal(fresh) // a string can always be marshaled
		return splice(body, start, end, value), fresh, nil
	default:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return nil, "", fmt.Errorf("%s of the body is %.40s: the field to vary must be a string or an integer", m.fresh, value)
		}
		fresh = strconv.FormatInt(n+m.generated, 10)
		return splice(body, start, end, []byte(fresh)), fresh, nil
	}
}

func splice(doc []byte, start, end int, value []byte) []byte {
	return bytes.Join([][]byte{doc[:start], value, doc[end:]}, nil)
}

// findValue returns the offsets in a document of the value that a JSON Pointer
// (RFC 6901) names.
func findValue(doc []byte, pointer string) (start, end int, err error) {
	if !isJSON(doc) {
		return 0, 0, fmt.Errorf("it is not JSON, so %q points to nothing", pointer)
	}
	if pointer == "" {
		return 0, len(doc), nil
	}
	if pointer[0] != '/' {
		return 0, 0, fmt.Errorf("%q is not a JSON Pointer: write one such as /items/0/name", pointer)
	}
	end = len(doc)
	for name := range strings.SplitSeq(pointer[1:], "/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		from, to, ok := findMember(doc[start:end], name)
		if !ok {
			return 0, 0, fmt.Errorf("%s points to nothing in it", pointer)
		}
		start, end = start+from, start+to
	}
	return start, end, nil
}

// findMember returns the offsets of the value that has the name or the index in a JSON
// object or array.
func findMember(doc []byte, name string) (start, end int, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	open, err := dec.Token()
	if err != nil || open != json.Delim('{') && open != json.Delim('[') {
		return 0, 0, false
	}
	for i := 0; dec.More(); i++ {
		at := strconv.Itoa(i)
		if open == json.Delim('{') {
			token, err := dec.Token()
			if err != nil {
				return 0, 0, false
			}
			at, _ = token.(string)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return 0, 0, false
		}
		if at == name {
			end = int(dec.InputOffset())
			return end - len(value), end, true
		}
	}
	return 0, 0, false
}

// countURL returns the URL at which a command's effects are counted. The fresh value is
// escaped so that it is valid in a path and in a query.
func countURL(template, fresh string) string {
	return strings.ReplaceAll(template, placeholderInURL, strings.ReplaceAll(url.QueryEscape(fresh), "+", "%20"))
}

func isJSON(b []byte) bool { return json.Valid(b) }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it does not fail
	return hex.EncodeToString(b)
}

// newKey returns a random UUID, which every published key format accepts.
func newKey() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it does not fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
