package watermillonce

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// A text is a string that JSON keeps as it is, whatever bytes it has.
type text string

// encoded begins a text that is kept in base64.
const encoded = "\x00base64:"

// MarshalText never fails.
func (t text) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(t)) && !strings.HasPrefix(string(t), encoded) {
		return []byte(t), nil
	}
	return []byte(encoded + base64.StdEncoding.EncodeToString([]byte(t))), nil
}

// UnmarshalText undoes MarshalText.
func (t *text) UnmarshalText(b []byte) error {
	coded, ok := strings.CutPrefix(string(b), encoded)
	if !ok {
		*t = text(b)
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	*t = text(raw)
	return err
}
