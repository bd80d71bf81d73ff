// Package syntax has the syntax rules of HTTP (RFC 9110, section 5) by which the proxy
// reads requests and responses.
package syntax

import "strings"

var tokenBytes = func() (is [256]bool) {
	for _, b := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[b] = true
	}
	return is
}()

// IsTokenByte reports whether b may be part of a token, such as a header's name: RFC
// 9110, section 5.6.2.
func IsTokenByte(b byte) bool { return tokenBytes[b] }

// IsToken reports whether s consists of token bytes only. An empty s does.
func IsToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return true
}

// IsText reports whether s has no control character except tabs, as the value of a
// header must not.
func IsText[S string | []byte](s S) bool {
	for i := range len(s) {
		if b := s[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// HasToken reports whether a comma-separated list has the token, in any case.
func HasToken(list, token string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(TrimBlanks(t), token) {
			return true
		}
	}
	return false
}

// TrimBlanks returns s without the spaces and tabs at its ends.
func TrimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// ParseLength returns a decimal number of at most 18 digits, or -1.
func ParseLength(s string) int64 {
	if s == "" || len(s) > 18 {
		return -1
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n
}

// How long the lines of a chunked body may be, in bytes.
const (
	MaxChunkLine = 256     // before a chunk
	MaxTrailer   = 8 << 10 // of all trailers
)

// ChunkSize parses the line before a chunk, without its CRLF, and returns the size of
// the chunk. Extensions are skipped.
func ChunkSize(line []byte) (n int64, ok bool) {
	digits := 0
	for ; digits < len(line); digits++ {
		d := HexDigit(line[digits])
		if d < 0 {
			break
		}
		if n = n<<4 | int64(d); digits == 15 {
			return 0, false
		}
	}
	rest := TrimBlanks(string(line[digits:]))
	return n, digits > 0 && (rest == "" && len(line) == digits || rest != "" && rest[0] == ';' && IsText(rest))
}

// HexDigit returns the value of a hexadecimal digit in either case, or -1.
func HexDigit(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		return int(b|0x20-'a') + 10
	}
	return -1
}
