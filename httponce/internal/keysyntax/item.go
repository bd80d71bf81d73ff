package keysyntax

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// quoted reads an RFC 9651 string at the beginning of s.
func quoted(s string) (value, rest string, ok bool) {
	var unescaped []byte
	start := 1 // of the part that is not yet in unescaped
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if unescaped == nil {
				return s[1:i], s[i+1:], true
			}
			return string(append(unescaped, s[start:i]...)), s[i+1:], true
		case c == '\\':
			if i+1 == len(s) || s[i+1] != '"' && s[i+1] != '\\' {
				return "", "", false
			}
			unescaped = append(unescaped, s[start:i]...)
			start = i + 1
			i++
		case c < ' ' || c > '~':
			return "", "", false
		}
	}
	return "", "", false
}

// isParameters reports whether s is a possibly empty list of RFC 9651 parameters.
func isParameters(s string) bool {
	for s != "" {
		if s[0] != ';' {
			return false
		}
		s = strings.TrimLeft(s[1:], " ")
		n := span(s, isParameterName)
		if n == 0 || !isLower(s[0]) && s[0] != '*' {
			return false
		}
		s = s[n:]
		if s != "" && s[0] == '=' {
			var ok bool
			if s, ok = bareItem(s[1:]); !ok {
				return false
			}
		}
	}
	return true
}

// bareItem skips an RFC 9651 bare item at the beginning of s.
func bareItem(s string) (rest string, ok bool) {
	if s == "" {
		return "", false
	}
	switch c := s[0]; {
	case c == '"':
		_, rest, ok = quoted(s)
		return rest, ok
	case c == '-' || isDigit(c):
		return number(s, true)
	case c == '@':
		return number(s[1:], false)
	case c == '?':
		return s[min(2, len(s)):], len(s) > 1 && (s[1] == '0' || s[1] == '1')
	case c == ':':
		return byteSequence(s)
	case c == '%':
		return displayString(s)
	case c == '*' || isLower(c|0x20):
		return s[span(s, isTokenChar):], true
	}
	return "", false
}

// number skips an integer of up to 15 digits, or a decimal of up to 12 and 3.
func number(s string, decimal bool) (rest string, ok bool) {
	s = strings.TrimPrefix(s, "-")
	n := span(s, isDigit)
	rest = s[n:]
	if n == 0 || n > 15 {
		return "", false
	}
	if rest == "" || rest[0] != '.' {
		return rest, true
	}
	m := span(rest[1:], isDigit)
	return rest[1+m:], decimal && n <= 12 && m >= 1 && m <= 3
}

func byteSequence(s string) (rest string, ok bool) {
	n := span(s[1:], func(c byte) bool {
		return isDigit(c) || isLower(c|0x20) || c == '+' || c == '/' || c == '='
	})
	rest = s[1+n:]
	if rest == "" || rest[0] != ':' {
		return "", false
	}
	return rest[1:], true
}

func displayString(s string) (rest string, ok bool) {
	if !strings.HasPrefix(s, `%"`) {
		return "", false
	}
	var text []byte
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[i+1:], utf8.Valid(text)
		case c == '%':
			if i+2 >= len(s) || !isLowerHex(s[i+1]) || !isLowerHex(s[i+2]) {
				return "", false
			}
			b, _ := hex.DecodeString(s[i+1 : i+3])
			text = append(text, b...)
			i += 2
		case c < ' ' || c > '~':
			return "", false
		default:
			text = append(text, c)
		}
	}
	return "", false
}

// span returns how many bytes at the beginning of s satisfy is.
func span(s string, is func(byte) bool) int {
	n := 0
	for n < len(s) && is(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool    { return '0' <= c && c <= '9' }
func isLower(c byte) bool    { return 'a' <= c && c <= 'z' }
func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

func isParameterName(c byte) bool {
	return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

func isTokenChar(c byte) bool {
	return isDigit(c) || isLower(c|0x20) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
