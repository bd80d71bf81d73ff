package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// A reply is the head of an upstream's answer, and what follows from it: RFC
// 9112, but nothing that could be read in two ways.
type reply struct {
	status  int
	fields  []field
	trailer int   // where in fields the trailer begins; 0: there is none
	length  int64 // of the body; -1: not said
	chunked bool
	close   bool // the connection ends with the answer
}

type field struct{ name, value string } // the name canonical

const (
	longestHead = 64 << 10
	mostFields  = 256
	mostInterim = 16 // answers before the answer, such as 103
)

var (
	errHeadTooLong = fmt.Errorf("the answer's header is longer than %d bytes or %d fields", longestHead, mostFields)
	errMalformed   = errors.New("the answer is malformed")
)

func malformed(what string) error { return fmt.Errorf("%w: %s", errMalformed, what) }

// head receives the next head, without its last line, of which the conn's owner
// has not received anything yet. It counts as used.
func (c *conn) head() (string, error) {
	scanned := c.at
	for {
		i, err := endOfHead(c.in[scanned:])
		if err != nil {
			return "", err
		}
		if i >= 0 {
			end := scanned + i
			if end-c.at > longestHead {
				return "", errHeadTooLong
			}
			s := string(c.in[c.at:end])
			c.at = end + len("\r\n")
			return s, nil
		}
		if len(c.in)-c.at > longestHead {
			return "", errHeadTooLong
		}
		scanned = max(c.at, len(c.in)-len("\r\n\r\n"))
		was := c.at
		if err := c.fill(); err != nil {
			return "", err
		}
		scanned -= was - c.at // fill may begin anew
	}
}

// endOfHead returns where the empty line begins that ends the head, or -1.
// What b begins with belongs to a line.
func endOfHead(b []byte) (int, error) {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return -1, nil
		}
		i += from
		if i > 0 && b[i-1] != '\r' {
			return 0, malformed("a line that ends with LF alone")
		}
		if i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n' {
			return i + 1, nil
		}
		from = i + 1
	}
}

// readReply receives the head of the answer to a request of that method.
func (c *conn) readReply(method string) error {
	for range mostInterim {
		head, err := c.head()
		if err != nil {
			return err
		}
		if err := c.reply.parse(head, method); err != nil {
			return err
		}
		switch {
		case c.reply.status == http.StatusSwitchingProtocols:
			return malformed("it switches protocols, which nobody asked for")
		case c.reply.status >= 200:
			return nil
		}
	}
	return errInterim
}

// parse reads a head: lines that all end with CRLF.
func (r *reply) parse(head, method string) error {
	*r = reply{fields: r.fields[:0], length: -1}
	line, rest, ok := strings.Cut(head, "\r\n")
	if !ok {
		return malformed("no status line")
	}
	old, err := r.statusLine(line)
	if err != nil {
		return err
	}
	r.close = old
	for rest != "" {
		line, rest, ok = strings.Cut(rest, "\r\n")
		if !ok {
			return malformed("a line that does not end")
		}
		if len(r.fields) == mostFields {
			return errHeadTooLong
		}
		f, err := parseField(line)
		if err != nil {
			return err
		}
		r.fields = append(r.fields, f)
	}
	return r.frame(old, method)
}

func (r *reply) statusLine(line string) (old bool, err error) {
	if len(line) < len("HTTP/1.1 200") || line[:7] != "HTTP/1." || line[7] != '0' && line[7] != '1' || line[8] != ' ' {
		return false, malformed("the status line")
	}
	for _, d := range []byte(line[9:12]) {
		if d < '0' || d > '9' {
			return false, malformed("the status")
		}
		r.status = r.status*10 + int(d-'0')
	}
	if r.status < 100 || len(line) > 12 && line[12] != ' ' || !isText(line) {
		return false, malformed("the status line")
	}
	return line[7] == '0', nil
}

func parseField(line string) (field, error) {
	i := strings.IndexByte(line, ':')
	if i <= 0 {
		return field{}, malformed("a header line without a name")
	}
	name, value := line[:i], line[i+1:]
	for j := range len(name) {
		if !isTokenByte[name[j]] {
			return field{}, malformed("a header's name")
		}
	}
	if !isText(value) {
		return field{}, malformed("a header's value")
	}
	return field{textproto.CanonicalMIMEHeaderKey(name), trim(value)}, nil
}

// frame finds out how long the body is.
func (r *reply) frame(old bool, method string) error {
	coded, named := false, 0
	for _, f := range r.fields {
		switch f.name {
		case "Content-Length":
			if r.length >= 0 {
				return malformed("two lengths")
			}
			if r.length = parseLength(f.value); r.length < 0 {
				return malformed("the length")
			}
		case "Transfer-Encoding":
			if coded || old || !strings.EqualFold(f.value, "chunked") {
				return malformed("the transfer coding")
			}
			coded = true
		case "Connection":
			if named += 1 + strings.Count(f.value, ","); named > longestList {
				return malformed("a Connection header that names too many headers")
			}
			r.close = r.close || hasToken(f.value, "close")
		}
	}
	if coded && r.length >= 0 {
		return malformed("a length and a transfer coding")
	}
	switch {
	case r.status < 200 || r.status == http.StatusNoContent:
		if coded || r.length > 0 {
			return malformed("a body where none can be")
		}
		r.length = 0
	case r.status == http.StatusNotModified || method == http.MethodHead:
		r.length, coded = 0, false
	}
	r.chunked = coded
	r.close = r.close || r.length < 0 && !coded
	return nil
}

// parseLength returns a decimal number, or -1.
func parseLength(s string) int64 {
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

// hasToken reports whether a comma-separated list has the token.
func hasToken(list, token string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(trim(t), token) {
			return true
		}
	}
	return false
}

func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// isText reports whether s is visible text, with blanks, as in a header's value.
func isText(s string) bool {
	for i := range len(s) {
		if b := s[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// isTokenByte has the bytes of a token: RFC 9110, section 5.6.2.
var isTokenByte = func() (is [256]bool) {
	for _, b := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[b] = true
	}
	return is
}()
