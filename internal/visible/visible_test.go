package visible

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// bad are characters that a terminal acts on, or that hide others.
const bad = "\x00\x07\x1b[2J\x7f\u0085\u009b31m\u00ad\u061c\u200b\u200e\u202e\u2028\u2066\u2069\ufeff\U000e0041"

func hides(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

func TestVisible_NoTextHidesAnything(t *testing.T) {
	t.Parallel()
	got := Text("a"+bad+"\xff\n日é", "\n")
	if strings.ContainsFunc(strings.ReplaceAll(got, "\n", ""), hides) || !utf8.ValidString(got) || !strings.HasSuffix(got, "\\xff\n日é") {
		t.Errorf("%q", got)
	}
}

func TestWholeRunes_OnlyAnIncompleteCharacterIsRemoved(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "a": "a", "aé": "aé", "a\xc3": "a", "日\xe6\x97": "日", "a\xf0\x9f\x98": "a", "a\xff": "a\xff", "\x80\x80\x80\x80": "\x80\x80\x80\x80",
	} {
		if got := string(WholeRunes([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzVisibleTextHidesNothing(f *testing.F) {
	f.Add(bad)
	f.Add("é\xff")
	f.Fuzz(func(t *testing.T, text string) {
		if got := Text(text, ""); strings.ContainsFunc(got, hides) || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	})
}
