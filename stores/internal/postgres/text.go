package postgres

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// escaped begins a text that is stored as hexadecimal.
const escaped = `\x`

// Escape makes any bytes a text that PostgreSQL can store. Different bytes have different
// texts.
func Escape(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") && !strings.HasPrefix(s, escaped) {
		return s
	}
	return escaped + hex.EncodeToString([]byte(s))
}

// Unescape undoes Escape. It returns a text that Escape can't have written as it is.
func Unescape(s string) string {
	coded, ok := strings.CutPrefix(s, escaped)
	if !ok {
		return s
	}
	b, err := hex.DecodeString(coded)
	if err != nil {
		return s
	}
	return string(b)
}

// Record makes a row a record.
func Record(r record.Row) record.Stored {
	for _, s := range []*string{&r.Tenant, &r.Operation, &r.Key, &r.Ref, &r.Error} {
		*s = Unescape(*s)
	}
	return r.Record()
}
