package h1

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A Field is a header or a trailer. Its Name is in canonical form.
type Field struct{ Name, Value string }

// A responseHead is the head of a response and the framing that follows from it.
type responseHead struct {
	status  int
	fields  []Field
	trailer int   // index in fields of the first trailer; 0: there is none
	length  int64 // of the body; -1: unknown
	chunked bool
	close   bool // the connection ends with the response
}

const (
	// MaxHead is the largest length of the head of a response, in bytes.
	MaxHead    = 64 << 10
	mostFields = 256

	// MaxInterim is the largest number of interim responses (such as 103) to a request.
	MaxInterim = 16

	// MaxConnectionNames is the largest number of names in the Connection headers of a
	// message. It bounds the work of comparing all other headers with them.
	MaxConnectionNames = 64
)

var (
	errHeadTooLong = fmt.Errorf("the response's header is longer than %d bytes or %d fields", MaxHead, mostFields)
	errMalformed   = errors.New("the response is malformed")

	// ErrInterim means that there were more than MaxInterim interim responses, or that
	// one had the status 101.
	ErrInterim = Malformed("too many interim responses, or one with the status 101")
)

// errBody is the error of a response that has a body although its status allows none.
var errBody = Malformed("a body where none can be")

// Malformed returns the error of a response that does not have exactly one reading.
func Malformed(what string) error { return fmt.Errorf("%w: %s", errMalformed, what) }

// parse parses the head of a response to a request with the method. All lines of head
// end with CRLF.
func (r *responseHead) parse(head, method string) error {
	*r = responseHead{fields: r.fields[:0], length: -1}
	line, rest, ok := strings.Cut(head, "\r\n")
	if !ok {
		return Malformed("no status line")
	}
	old, err := r.statusLine(line)
	if err != nil {
		return err
	}
	r.close = old
	for rest != "" {
		line, rest, ok = strings.Cut(rest, "\r\n")
		if !ok {
			return Malformed("a line that does not end")
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

// statusLine parses a status line and reports whether its version is HTTP/1.0.
func (r *responseHead) statusLine(line string) (old bool, err error) {
	if len(line) < len("HTTP/1.1 200") || line[:7] != "HTTP/1." || line[7] != '0' && line[7] != '1' || line[8] != ' ' {
		return false, Malformed("the status line")
	}
	for _, d := range []byte(line[9:12]) {
		if d < '0' || d > '9' {
			return false, Malformed("the status")
		}
		r.status = r.status*10 + int(d-'0')
	}
	if r.status < 100 || len(line) > 12 && line[12] != ' ' || !httpfield.IsText(line) {
		return false, Malformed("the status line")
	}
	return line[7] == '0', nil
}

func parseField(line string) (Field, error) {
	i := strings.IndexByte(line, ':')
	if i <= 0 {
		return Field{}, Malformed("a header line without a name")
	}
	name, value := line[:i], line[i+1:]
	if !httpfield.IsToken(name) {
		return Field{}, Malformed("a header's name")
	}
	if !httpfield.IsText(value) {
		return Field{}, Malformed("a header's value")
	}
	return Field{textproto.CanonicalMIMEHeaderKey(name), syntax.TrimBlanks(value)}, nil
}

// frame determines the framing of the body (RFC 9112, section 6.3).
func (r *responseHead) frame(old bool, method string) error {
	coded, named := false, 0
	for _, f := range r.fields {
		switch f.Name {
		case "Content-Length":
			if r.length >= 0 {
				return Malformed("two lengths")
			}
			if r.length = syntax.ParseLength(f.Value); r.length < 0 {
				return Malformed("the length")
			}
		case "Transfer-Encoding":
			if coded || old || !strings.EqualFold(f.Value, "chunked") {
				return Malformed("the transfer coding")
			}
			coded = true
		case "Connection":
			if named += 1 + strings.Count(f.Value, ","); named > MaxConnectionNames {
				return Malformed("a Connection header that names too many headers")
			}
			r.close = r.close || syntax.HasToken(f.Value, "close")
		}
	}
	if coded && r.length >= 0 {
		return Malformed("a length and a transfer coding")
	}
	switch {
	case r.status < 200 || r.status == http.StatusNoContent:
		if coded || r.length > 0 {
			return errBody
		}
		r.length = 0
	case r.status == http.StatusNotModified || method == http.MethodHead:
		r.length, coded = 0, false
	}
	r.chunked = coded
	r.close = r.close || r.length < 0 && !coded
	return nil
}
