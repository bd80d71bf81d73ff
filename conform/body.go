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

// placeholderInURL is one that is the same in every part of a URL.
const placeholderInURL = "FRESH-7f1d0c"

// A bodyMaker makes bodies that differ from each other.
type bodyMaker struct {
	body  []byte
	fresh string // a JSON Pointer, or ""
	made  int64
}

// newBodyMaker tries it once.
func newBodyMaker(body []byte, fresh string) (*bodyMaker, error) {
	m := &bodyMaker{body: body, fresh: fresh}
	_, _, err := m.next()
	return m, err
}

// varies reports whether two bodies differ.
func (m *bodyMaker) varies() bool {
	return m.fresh != "" || bytes.Contains(m.body, []byte(placeholder))
}

// next returns a body, and the values that were generated for it.
func (m *bodyMaker) next() (body []byte, fresh string, err error) {
	m.made++
	digits := randomHex(4)
	body = bytes.ReplaceAll(m.body, []byte(placeholder), []byte(digits))
	if m.fresh == "" {
		return body, digits, nil
	}
	start, end, err := find(body, m.fresh)
	if err != nil {
		return nil, "", err
	}
	var text string
	switch value := body[start:end]; {
	case json.Unmarshal(value, &text) == nil && value[0] == '"':
		fresh = text + "-" + digits
		value, _ = json.Marshal(fresh) // of a string, it does not fail
		return splice(body, start, end, value), fresh, nil
	default:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return nil, "", fmt.Errorf("%s of the body is %.40s: the field to vary must be a string or an integer", m.fresh, value)
		}
		fresh = strconv.FormatInt(n+m.made, 10)
		return splice(body, start, end, []byte(fresh)), fresh, nil
	}
}

func splice(doc []byte, start, end int, value []byte) []byte {
	return bytes.Join([][]byte{doc[:start], value, doc[end:]}, nil)
}

// find returns where in a document the value is that a JSON Pointer (RFC 6901)
// names.
func find(doc []byte, pointer string) (start, end int, err error) {
	if !isJSON(doc) {
		return 0, 0, fmt.Errorf("it is not JSON, so that %q points to nothing", pointer)
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
		from, to, ok := member(doc[start:end], name)
		if !ok {
			return 0, 0, fmt.Errorf("%s points to nothing in it", pointer)
		}
		start, end = start+from, start+to
	}
	return start, end, nil
}

// member returns where the value of a name or an index is in a JSON value.
func member(doc []byte, name string) (start, end int, ok bool) {
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

// countURL is where a command's effects are counted. What is fresh is escaped so
// that it may stand in a path or a query.
func countURL(template, fresh string) string {
	return strings.ReplaceAll(template, placeholderInURL, strings.ReplaceAll(url.QueryEscape(fresh), "+", "%20"))
}

func isJSON(b []byte) bool { return json.Valid(b) }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it does not fail
	return hex.EncodeToString(b)
}

// newKey is a random UUID: every published format of keys takes it.
func newKey() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it does not fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
