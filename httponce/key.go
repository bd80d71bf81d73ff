package httponce

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// afterToken is what ends a token.
const afterToken = "; \t,\""

// A KeyFormat defines which idempotency keys are accepted. The zero KeyFormat
// accepts 1 to DefaultMaxKeyLength characters from a-z A-Z 0-9 - _, quoted or
// bare.
type KeyFormat struct {
	Syntax    KeySyntax // of the header; default StringOrToken
	MaxLength int       // in bytes; default DefaultMaxKeyLength, at most 1024
	Chars     string    // the allowed characters, printable ASCII; default a-z A-Z 0-9 - _
}

// A KeySyntax defines how a key is written in the header.
type KeySyntax int

const (
	StringOrToken KeySyntax = iota // an RFC 9651 string ("k") or a bare token (k), either with parameters
	StringOnly                     // an RFC 9651 string, as the expired Internet-Draft on the header requires
	TokenOnly                      // the bare key and nothing else
)

// A keyReader reads keys of a format.
type keyReader struct {
	syntax  KeySyntax
	longest int
	allowed [256]bool
	bare    bool // every key can be written as a token, without quotes
}

func newKeyReader(format KeyFormat) keyReader {
	f := keyReader{syntax: format.Syntax, longest: format.MaxLength, bare: !strings.ContainsAny(format.Chars, afterToken)}
	for i := range len(format.Chars) {
		f.allowed[format.Chars[i]] = true
	}
	return f
}

// describe formats a set of characters for messages, such as "a-z 0-9 -".
func describe(chars *[256]bool) string {
	var words []string
	for from := 0; from < len(chars); from++ {
		if !chars[from] {
			continue
		}
		to := from
		for to+1 < len(chars) && chars[to+1] && kind(byte(to+1)) == kind(byte(from)) && kind(byte(from)) != 0 {
			to++
		}
		switch {
		case from == ' ':
			words = append(words, "the blank")
		case to > from+1:
			words = append(words, string([]byte{byte(from), '-', byte(to)}))
		default:
			to = from
			words = append(words, string([]byte{byte(from)}))
		}
		from = to
	}
	return strings.Join(words, " ")
}

// kind distinguishes lower-case letters, upper-case letters and digits; 0: none
// of them.
func kind(c byte) byte {
	switch {
	case isDigit(c):
		return '0'
	case isLower(c):
		return 'a'
	case 'A' <= c && c <= 'Z':
		return 'A'
	}
	return 0
}

// notAllowed describes the character at the beginning of s, which a key must
// not have.
func (f *keyReader) notAllowed(s string) string {
	if f.allowed[s[0]] { // but not without quotes
		return "A key with " + strconv.Quote(s[:1]) + ` must be a quoted string, such as "8e03978e".`
	}
	r, size := utf8.DecodeRuneInString(s)
	name := fmt.Sprintf("the byte 0x%02X", s[0])
	if r != utf8.RuneError || size > 1 {
		name = "the character " + strconv.QuoteToASCII(string(r))
	}
	return "The key has " + name + ", which is not allowed. Allowed characters: " + describe(&f.allowed) + "."
}

// read returns the key in a header's values, or a description of what is wrong
// with them.
func (f *keyReader) read(values []string) (key, wrong string) {
	if len(values) != 1 {
		return "", "The header is given more than once."
	}
	s := values[0]
	if f.syntax == TokenOnly || f.bare && f.syntax == StringOrToken {
		if wrong = f.judge(s); wrong == "" || f.syntax == TokenOnly {
			return s, wrong
		}
	}
	s = strings.Trim(s, " \t")
	rest := ""
	switch {
	case s == "":
		return "", "The header is empty."
	case s[0] == '"':
		var ok bool
		if key, rest, ok = quoted(s); !ok {
			return "", "The header is not a well-formed string."
		}
	case f.syntax == StringOnly:
		return "", `The key must be a quoted string, such as "8e03978e".`
	default:
		key, rest = s, ""
		if i := strings.IndexAny(s, afterToken); i >= 0 {
			key, rest = s[:i], s[i:]
			if rest[0] != ';' {
				return "", f.notAllowed(rest)
			}
		}
	}
	if !parameters(rest) {
		return "", "Something other than well-formed parameters follows the key."
	}
	return key, f.judge(key)
}

func (f *keyReader) judge(key string) (wrong string) {
	switch {
	case key == "":
		return "The key is empty."
	case len(key) > f.longest:
		return fmt.Sprintf("The key has %d characters; %d are allowed.", len(key), f.longest)
	}
	for i := range len(key) {
		if !f.allowed[key[i]] {
			return f.notAllowed(key[i:])
		}
	}
	return ""
}

// quoted reads an RFC 9651 string at the beginning of s.
func quoted(s string) (value, rest string, ok bool) {
	var unescaped []byte
	start := 1 // of what is not yet in unescaped
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

// quote writes a key as an RFC 9651 string.
func quote(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// parameters reports whether s is a list of RFC 9651 parameters, maybe empty.
func parameters(s string) bool {
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

// span returns how many of the first bytes of s are of a kind.
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
