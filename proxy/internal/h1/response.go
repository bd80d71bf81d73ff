package h1

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A Response is what the server answered. It must be released or closed.
type Response struct {
	client *Client
	conn   *conn
}

// Status returns the status code.
func (r *Response) Status() int { return r.conn.head.status }

// Header returns the fields before the body.
func (r *Response) Header() []Field {
	if h := &r.conn.head; h.trailer > 0 {
		return h.fields[:h.trailer]
	}
	return r.conn.head.fields
}

// Trailer returns the fields behind the body, once it has been read.
func (r *Response) Trailer() []Field {
	if h := &r.conn.head; h.trailer > 0 {
		return h.fields[h.trailer:]
	}
	return nil
}

// SetDeadline says when all of the body has to have come. Without it only each piece
// has its time.
func (r *Response) SetDeadline(t time.Time) { r.conn.end = t }

// Body hands the body to take, piece by piece. A piece is overwritten by the next. It
// ends when take returns false.
func (r *Response) Body(take func([]byte) bool) error { return r.conn.body(take) }

// Release keeps the connection for its owner's next request if nothing was left of
// this one, and closes it otherwise.
func (r *Response) Release() {
	c := r.conn
	if c.owner != "" && c.whole && !c.head.close && c.at == len(c.in) {
		r.client.pool.put(c)
	} else {
		c.Close()
	}
}

// Close closes the connection.
func (r *Response) Close() { r.conn.Close() }

// A Field is a header or a trailer. Its Name is in canonical form.
type Field struct{ Name, Value string }

// A responseHead is the head of a response, and what follows from it.
type responseHead struct {
	status  int
	fields  []Field
	trailer int   // where in fields the trailer begins; 0: there is none
	length  int64 // of the body; -1: not said
	chunked bool
	close   bool // the connection ends with the response
}

const (
	longestHead = 64 << 10
	mostFields  = 256

	// MaxInterim is the most interim responses before the response, such as 103.
	MaxInterim = 16

	// MaxConnectionNames is the most names that the Connection headers of a message
	// may have. Every other header is looked for among them.
	MaxConnectionNames = 64
)

var (
	errHeadTooLong = fmt.Errorf("the response's header is longer than %d bytes or %d fields", longestHead, mostFields)
	errMalformed   = errors.New("the response is malformed")

	// ErrInterim says that there were more than MaxInterim.
	ErrInterim = Malformed("too many interim responses")
)

// Malformed returns the error of a response that has no single reading.
func Malformed(what string) error { return fmt.Errorf("%w: %s", errMalformed, what) }

// nextHead receives the next head, without its last line, of which the conn's owner
// has not received anything yet. It counts as used.
func (c *conn) nextHead() (string, error) {
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
			return 0, Malformed("a line that ends with LF alone")
		}
		if i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n' {
			return i + 1, nil
		}
		from = i + 1
	}
}

// receive receives the head of the response to a request of that method.
func (c *conn) receive(method string) error {
	for range MaxInterim {
		head, err := c.nextHead()
		if err != nil {
			return err
		}
		if err := c.head.parse(head, method); err != nil {
			return err
		}
		switch {
		case c.head.status == http.StatusSwitchingProtocols:
			return Malformed("it switches protocols, which nobody asked for")
		case c.head.status >= 200:
			return nil
		}
	}
	return ErrInterim
}

// parse reads a head: lines that all end with CRLF.
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
	if r.status < 100 || len(line) > 12 && line[12] != ' ' || !syntax.IsText(line) {
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
	if !syntax.IsToken(name) {
		return Field{}, Malformed("a header's name")
	}
	if !syntax.IsText(value) {
		return Field{}, Malformed("a header's value")
	}
	return Field{textproto.CanonicalMIMEHeaderKey(name), syntax.TrimBlanks(value)}, nil
}

// frame finds out how long the body is.
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
			return Malformed("a body where none can be")
		}
		r.length = 0
	case r.status == http.StatusNotModified || method == http.MethodHead:
		r.length, coded = 0, false
	}
	r.chunked = coded
	r.close = r.close || r.length < 0 && !coded
	return nil
}
