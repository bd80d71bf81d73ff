package postgres

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText_AnyBytesComeBackFromWhatPostgreSQLHolds(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"", "acme", "acme ", `\x`, `\x41`, "A", `\\x41`, "\x00", "a\x00b", "\xff", "\xc3", "é", "e\u0301", `\xzz`, "🎉", "\\"} {
		escaped := Escape(s)
		if !utf8.ValidString(escaped) || strings.Contains(escaped, "\x00") {
			t.Errorf("%q is kept as %q, which is no text", s, escaped)
		}
		if back := Unescape(escaped); back != s {
			t.Errorf("%q came back as %q", s, back)
		}
		if other, twice := seen[escaped]; twice {
			t.Errorf("%q and %q are both kept as %q", s, other, escaped)
		}
		seen[escaped] = s
	}
	if plain := Escape("POST /v1/orders é"); plain != "POST /v1/orders é" {
		t.Errorf("a text is kept as %q", plain)
	}
}
