package record

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// EncodeHeader returns the header and the traceparent of a result as JSON, or nil if it has
// neither.
func EncodeHeader(r *onlyonce.Result) any {
	h := r.Header
	if r.Traceparent != "" {
		if h = maps.Clone(h); h == nil {
			h = make(map[string][]string, 1)
		}
		h[traceName] = []string{r.Traceparent}
	}
	if h == nil {
		return nil
	}
	var space [16]string // most headers have fewer names
	names := slices.AppendSeq(space[:0], maps.Keys(h))
	slices.Sort(names)
	var room [512]byte
	b := append(room[:0], '{')
	for _, name := range names {
		if len(b) > 1 {
			b = append(b, ',')
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

// DecodeHeader sets the header and the traceparent of r to those that EncodeHeader made text.
func DecodeHeader(text string, r *onlyonce.Result) (err error) {
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
