// Package syntax has the syntax rules of HTTP (RFC 9110, section 5) by which the proxy
// reads requests and responses, and which only the proxy needs.
package syntax

import (
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

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
	return n, digits > 0 && (rest == "" && len(line) == digits || rest != "" && rest[0] == ';' && httpfield.IsText(rest))
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
