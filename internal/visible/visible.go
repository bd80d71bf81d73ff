// Package visible makes text of unknown origin safe to show to a person.
package visible

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text escapes the characters of a text that are invisible or that a terminal or a
// browser interprets, except those in keep: C0 and C1 control characters, DEL,
// characters that change the direction of text or have no width, and invalid UTF-8.
func Text(text, keep string) string {
	if strings.IndexFunc(text, Hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case Hidden(r) && !strings.ContainsRune(keep, r):
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// Hidden reports whether Text escapes a character.
func Hidden(r rune) bool { return !strconv.IsPrint(r) }

// Cut returns the beginning of a text that has more than n bytes, with an ellipsis.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// WholeRunes returns a text that was cut without the incomplete character at its end, if
// there is one.
func WholeRunes(text []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}
