package record

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// escaped begins a JSON string that holds, in base64, bytes that are not UTF-8.
const escaped = "\x00base64:"

// escape makes any bytes a string that survives JSON.
func escape(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, escaped) {
		return s
	}
	return escaped + base64.StdEncoding.EncodeToString([]byte(s))
}

func unescape(s string) (string, error) {
	coded, ok := strings.CutPrefix(s, escaped)
	if !ok {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(coded)
	return string(b), err
}

// traceName is the name under which the traceparent of a result is stored among its headers:
// it needs no column of its own, and is no name of a header in HTTP.
const traceName = ":traceparent"

// keepPrefix begins the text of a header whose result has a Keep, which follows in microseconds.
// Statements find it there.
const (
	keepName   = ":keep"
	keepPrefix = `{"` + keepName + `":["`
)

// EncodeHeader returns the header, the traceparent and the Keep of a result as JSON, or nil if
// it has none of them.
func EncodeHeader(r *onlyonce.Result) any {
	h := r.Header
	if r.Traceparent != "" {
		if h = maps.Clone(h); h == nil {
			h = make(map[string][]string, 1)
		}
		h[traceName] = []string{r.Traceparent}
	}
	if h == nil && r.Keep <= 0 {
		return nil
	}
	var space [16]string // most headers have fewer names
	names := slices.AppendSeq(space[:0], maps.Keys(h))
	slices.Sort(names)
	var room [512]byte
	b := append(room[:0], '{')
	if r.Keep > 0 {
		b = append(strconv.AppendInt(append(b, keepPrefix[1:]...), max(r.Keep, briefest).Microseconds(), 10), `"]`...)
	}
	for i, name := range names {
		switch {
		case i > 0 || r.Keep > 0:
			b = append(b, ',')
		case name == keepName: // a header of the caller's, which must not look like a Keep
			b = append(b, ' ')
		}
		b = append(appendString(b, name), ":["...)
		for i, value := range h[name] {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, value)
		}
		b = append(b, ']')
	}
	return string(append(b, '}'))
}

// appendString appends a JSON string. The characters of most headers need no escape.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(escape(s)) // a string has no error
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// DecodeHeader sets the header, the traceparent and the Keep of r to those that EncodeHeader
// made text.
func DecodeHeader(text string, r *onlyonce.Result) (err error) {
	if r.Keep, text, err = cutKeep(text); err != nil {
		return err
	}
	if r.Header, err = decodeHeader(text); err != nil {
		return err
	}
	if trace, ok := r.Header[traceName]; ok && len(trace) == 1 {
		r.Traceparent = trace[0]
		if delete(r.Header, traceName); len(r.Header) == 0 {
			r.Header = nil
		}
	}
	return nil
}

// cutKeep returns the Keep of a result and the text of its header without it.
func cutKeep(text string) (keep time.Duration, rest string, err error) {
	after, ok := strings.CutPrefix(text, keepPrefix)
	if !ok {
		return 0, text, nil
	}
	digits, after, ok := strings.Cut(after, `"]`)
	µs, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || µs <= 0 {
		return 0, "", fmt.Errorf("response_header: the result is kept for %q microseconds", digits)
	}
	if after == "}" {
		return Between(0, µs), "", nil
	}
	return Between(0, µs), "{" + strings.TrimPrefix(after, ","), nil
}

func decodeHeader(text string) (map[string][]string, error) {
	if text == "" {
		return nil, nil
	}
	if h, ok := decodePlain(text); ok {
		return h, nil
	}
	var safe map[string][]string
	if err := json.Unmarshal([]byte(text), &safe); err != nil {
		return nil, fmt.Errorf("response_header: %w", err)
	}
	h := make(map[string][]string, len(safe))
	for name, values := range safe {
		name, err := unescape(name)
		if err != nil {
			return nil, fmt.Errorf("response_header: %w", err)
		}
		for i := range values {
			if values[i], err = unescape(values[i]); err != nil {
				return nil, fmt.Errorf("response_header: %w", err)
			}
		}
		h[name] = values
	}
	return h, nil
}

// decodePlain decodes a header that EncodeHeader wrote without escapes. It is not ok for
// any other text.
func decodePlain(text string) (h map[string][]string, ok bool) {
	rest, ok := strings.CutPrefix(text, "{")
	if !ok || strings.IndexByte(rest, '\\') >= 0 {
		return nil, false
	}
	h = make(map[string][]string, 4)
	for first := true; rest != "}"; first = false {
		if !first {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				return nil, false
			}
		}
		var name string
		if name, rest, ok = cutString(rest); !ok {
			return nil, false
		}
		if rest, ok = strings.CutPrefix(rest, ":["); !ok {
			return nil, false
		}
		values := []string{}
		for {
			if rest, ok = strings.CutPrefix(rest, "]"); ok {
				break
			}
			if len(values) > 0 {
				if rest, ok = strings.CutPrefix(rest, ","); !ok {
					return nil, false
				}
			}
			var v string
			if v, rest, ok = cutString(rest); !ok {
				return nil, false
			}
			values = append(values, v)
		}
		h[name] = values
	}
	return h, true
}

// cutString cuts a JSON string of plain characters off.
func cutString(text string) (s, rest string, ok bool) {
	if text, ok = strings.CutPrefix(text, `"`); !ok {
		return "", "", false
	}
	s, rest, ok = strings.Cut(text, `"`)
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return "", "", false
		}
	}
	return s, rest, ok
}

// EncodeSteps returns JSON, or nil for no steps.
func EncodeSteps(steps map[string][]byte) (any, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	safe := make(map[string][]byte, len(steps))
	for name, b := range steps {
		if b == nil {
			b = []byte{}
		}
		safe[escape(name)] = b
	}
	b, err := json.Marshal(safe)
	return string(b), err
}

// DecodeSteps returns the steps that EncodeSteps made text.
func DecodeSteps(text string) (map[string][]byte, error) {
	if text == "" {
		return nil, nil
	}
	var safe map[string][]byte
	if err := json.Unmarshal([]byte(text), &safe); err != nil {
		return nil, fmt.Errorf("steps: %w", err)
	}
	steps := make(map[string][]byte, len(safe))
	for name, b := range safe {
		name, err := unescape(name)
		if err != nil {
			return nil, fmt.Errorf("steps: %w", err)
		}
		steps[name] = b
	}
	return steps, nil
}
