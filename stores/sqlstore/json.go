package sqlstore

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// escaped begins a JSON string that holds bytes which are no UTF-8, in base64.
const escaped = "\x00base64:"

// escape makes any bytes a string that JSON keeps.
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

// encodeHeader returns JSON, or nil for no header.
func encodeHeader(h map[string][]string) any {
	if h == nil {
		return nil
	}
	b := append(make([]byte, 0, 256), '{')
	for _, name := range slices.Sorted(maps.Keys(h)) {
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

// appendString appends a JSON string. What a header usually has needs no care.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(escape(s)) // a string has no error
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func decodeHeader(text string) (map[string][]string, error) {
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

// encodeSteps returns JSON, or nil for no steps.
func encodeSteps(steps map[string][]byte) (any, error) {
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

func decodeSteps(text string) (map[string][]byte, error) {
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
