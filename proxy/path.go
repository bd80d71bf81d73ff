package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// escapedPath returns the request's path as the client sent it, or the one that a
// handler around the Proxy has set instead.
func escapedPath(r *http.Request) string {
	received, _, _ := strings.Cut(r.RequestURI, "?")
	if received == r.URL.Path && strings.IndexByte(received, '%') < 0 {
		return received
	}
	if plain, err := url.PathUnescape(received); err == nil && plain == r.URL.Path {
		return received
	}
	return r.URL.EscapedPath()
}

// setPath sets the request's path to one in normal form. It replaces the URL, so
// that the caller's is not changed.
func setPath(r *http.Request, normal string) {
	if normal == r.URL.Path && r.URL.RawPath == "" {
		return // most paths are in normal form
	}
	u := *r.URL
	u.Path, _ = url.PathUnescape(normal) // a path in normal form is well-formed
	if u.RawPath = ""; u.EscapedPath() != normal {
		u.RawPath = normal
	}
	r.URL = &u
}

// How a byte of a path is treated.
const (
	rejectedByte = iota // not allowed in a URL, and parsers disagree about it
	plainByte           // stands for itself (RFC 3986, section 3.3)
	sloppyByte          // not allowed in a URL, but sent by clients: it is percent-encoded
)

var pathBytes = func() (kind [256]uint8) {
	for c := 'a'; c <= 'z'; c++ {
		kind[c], kind[c-'a'+'A'] = plainByte, plainByte
	}
	for _, c := range []byte("0123456789-._~!$&'()*+,;=:@/") {
		kind[c] = plainByte
	}
	for _, c := range []byte("\"<>[]^`{|}") {
		kind[c] = sloppyByte
	}
	return kind
}()

var (
	errNoPath       = errors.New("the target is not a path")
	errPathByte     = errors.New("the path has a byte that must be percent-encoded")
	errBackslash    = errors.New("the path has a backslash, which some servers read as a slash")
	errPercent      = errors.New("the path has a percent sign that two hexadecimal digits do not follow")
	errControl      = errors.New("the path has an encoded control character")
	errNoUTF8       = errors.New("the path is not UTF-8")
	errAuthority    = errors.New("the path begins with two slashes, which some servers read as the name of a host")
	errEmptyAndDots = errors.New("the path has both empty segments and dot segments, which servers resolve in different orders")
	errManyReadings = errors.New("servers may read this path in ways that lead to different routes")
)

// normalPath returns the normal form of an escaped path (RFC 3986, section 6.2.2):
// only bytes that need it are percent-encoded, in upper case, and dot segments are
// resolved. Every parser in the tests reads the normal form as it is written. A path
// without a normal form is an error.
func normalPath(escaped string) (string, error) {
	if escaped == "" || escaped[0] != '/' {
		return "", errNoPath
	}
	if isPlain(escaped) {
		return escaped, nil
	}
	if strings.HasPrefix(escaped, "//") {
		return "", errAuthority
	}
	normal, err := normalBytes(escaped)
	if err != nil {
		return "", err
	}
	resolved, dots := resolve(normal)
	if dots && strings.Contains(normal, "//") {
		return "", errEmptyAndDots
	}
	return resolved, nil
}

// isPlain reports whether an escaped path is in normal form and has one reading.
func isPlain(escaped string) bool {
	for i := range len(escaped) {
		switch c := escaped[i]; {
		case c == ';' || pathBytes[c] != plainByte: // includes the percent sign
			return false
		case c == '/' && i > 0 && (escaped[i-1] == '/' || escaped[i-1] == '.'):
			return false
		}
	}
	return !strings.HasSuffix(escaped, ".")
}

// normalBytes percent-encodes the bytes that need it, and decodes all others.
func normalBytes(escaped string) (string, error) {
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(escaped)+16)
	plain := make([]byte, 0, len(escaped))
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		encode := pathBytes[c] == sloppyByte
		switch {
		case c == '\\':
			return "", errBackslash
		case c == '%':
			if i+2 >= len(escaped) || syntax.HexDigit(escaped[i+1]) < 0 || syntax.HexDigit(escaped[i+2]) < 0 {
				return "", errPercent
			}
			c = byte(syntax.HexDigit(escaped[i+1])<<4 | syntax.HexDigit(escaped[i+2]))
			if c < ' ' || c == 0x7f {
				return "", errControl
			}
			i += 2
			encode = !isUnreserved(c)
		case pathBytes[c] == rejectedByte:
			return "", errPathByte
		}
		if plain = append(plain, c); encode {
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	if !utf8.Valid(plain) {
		return "", errNoUTF8
	}
	return string(b), nil
}

// isUnreserved reports whether a byte has the same meaning percent-encoded or not
// (RFC 3986, section 2.3).
func isUnreserved(c byte) bool {
	return syntax.IsAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0
}

// resolve returns a path without its dot segments (RFC 3986, section 5.2.4), and
// whether it had any.
func resolve(path string) (resolved string, dots bool) {
	if !strings.Contains(path, "/.") {
		return path, false
	}
	segments := strings.Split(path[1:], "/")
	kept := make([]string, 0, len(segments)+1)
	for i, s := range segments {
		switch s {
		default:
			kept = append(kept, s)
			continue
		case ".":
		case "..":
			kept = kept[:max(len(kept)-1, 0)]
		}
		if dots = true; i == len(segments)-1 {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/"), dots
}
