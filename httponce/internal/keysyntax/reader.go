// Package keysyntax reads idempotency keys: from the values of a header, as
// RFC 9651 strings or as tokens, and by the characters that a key may have. Its
// descriptions of malformed keys are for clients.
package keysyntax

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// afterToken are the characters that end a token.
const afterToken = "; \t,\""

// A Format defines which keys are read.
type Format struct {
	Strings bool   // an RFC 9651 string ("k"), with or without parameters
	Tokens  bool   // the bare key (k); with Strings, parameters may follow it
	Longest int    // in bytes
	Chars   string // the allowed characters, printable ASCII
}

// A Reader reads the keys of a Format.
type Reader struct {
	strings, tokens bool
	longest         int
	allowed         [256]bool
	bare            bool // every key can be written as a token
}

// NewReader returns a Reader of the format, which must allow strings or tokens.
func NewReader(format Format) Reader {
	r := Reader{strings: format.Strings, tokens: format.Tokens, longest: format.Longest, bare: IsToken(format.Chars)}
	for i := range len(format.Chars) {
		r.allowed[format.Chars[i]] = true
	}
	return r
}

// IsToken reports whether keys of these characters can be written as tokens.
func IsToken(chars string) bool { return !strings.ContainsAny(chars, afterToken) }

// Quote writes a key as an RFC 9651 string.
func Quote(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// notAllowed describes the character at the beginning of s, which a key must
// not have.
func (r *Reader) notAllowed(s string) string {
	if r.allowed[s[0]] { // but not without quotes
		return "A key with " + strconv.Quote(s[:1]) + ` must be a quoted string, such as "8e03978e".`
	}
	char, size := utf8.DecodeRuneInString(s)
	name := fmt.Sprintf("the byte 0x%02X", s[0])
	if char != utf8.RuneError || size > 1 {
		name = "the character " + strconv.QuoteToASCII(string(char))
	}
	return "The key has " + name + ", which is not allowed. Allowed characters: " + describe(&r.allowed) + "."
}

// Read returns the key in a header's values, or a description of the mistake
// with them.
func (r *Reader) Read(values []string) (key, wrong string) {
	if len(values) != 1 {
		return "", "The header is given more than once."
	}
	s := values[0]
	if !r.strings || r.bare && r.tokens {
		if wrong = r.Judge(s); wrong == "" || !r.strings {
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
	case !r.tokens:
		return "", `The key must be a quoted string, such as "8e03978e".`
	default:
		key, rest = s, ""
		if i := strings.IndexAny(s, afterToken); i >= 0 {
			key, rest = s[:i], s[i:]
			if rest[0] != ';' {
				return "", r.notAllowed(rest)
			}
		}
	}
	if !isParameters(rest) {
		return "", "Something other than well-formed parameters follows the key."
	}
	return key, r.Judge(key)
}

// Judge returns a description of the mistake in a key, or "".
func (r *Reader) Judge(key string) (wrong string) {
	switch {
	case key == "":
		return "The key is empty."
	case len(key) > r.longest:
		return fmt.Sprintf("The key has %d characters; %d are allowed.", len(key), r.longest)
	}
	for i := range len(key) {
		if !r.allowed[key[i]] {
			return r.notAllowed(key[i:])
		}
	}
	return ""
}
