package h1

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// body passes the body of the response to take, as Response.Body promises.
func (c *conn) body(consume func([]byte) bool) error {
	if c.head.status != http.StatusResetContent {
		return c.content(consume)
	}
	none := true // RFC 9110, section 15.3.6: a client may expect the next response where a body begins
	err := c.content(func([]byte) bool {
		none = false
		return false
	})
	if !none {
		return errBody
	}
	return err
}

// content is body for a response that may have one.
func (c *conn) content(consume func([]byte) bool) error {
	switch r := &c.head; {
	case r.chunked:
		return c.chunks(consume)
	case r.length >= 0:
		_, err := c.passBytes(r.length, consume)
		return err
	}
	for {
		if c.at < len(c.in) {
			piece := c.in[c.at:]
			c.at = len(c.in)
			if !consume(piece) {
				c.complete = false
				return nil
			}
		}
		if err := c.more(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// more is fill with the time limits of a body: one for each piece and one for the
// whole body.
func (c *conn) more() error {
	if c.left == nil {
		c.allow(c.stall)
		return c.fill()
	}
	if *c.left <= 0 {
		return os.ErrDeadlineExceeded
	}
	began := time.Now()
	defer func() { *c.left -= time.Since(began) }()
	c.allow(min(c.stall, *c.left))
	return c.fill()
}

// passBytes passes n bytes to take and reports whether take wants more.
func (c *conn) passBytes(n int64, consume func([]byte) bool) (bool, error) {
	for n > 0 {
		if c.at == len(c.in) {
			if n > minReadBuf && cap(c.in) < maxReadBuf {
				c.in, c.at = make([]byte, 0, maxReadBuf), 0
			}
			if err := c.more(); err != nil {
				return false, unexpected(err)
			}
		}
		piece := c.in[c.at:]
		if int64(len(piece)) > n {
			piece = piece[:n]
		}
		n -= int64(len(piece))
		c.at += len(piece)
		if !consume(piece) {
			c.complete = false
			return false, nil
		}
	}
	return true, nil
}

// unexpected turns io.EOF into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// chunks passes a chunked body to take. It appends the trailers to the fields of the
// head.
func (c *conn) chunks(consume func([]byte) bool) error {
	for {
		line, err := c.line(syntax.MaxChunkLine)
		if err != nil {
			return err
		}
		n, ok := syntax.ChunkSize(line)
		switch {
		case !ok:
			return Malformed("the length of a chunk")
		case n == 0:
			return c.trailer()
		}
		if more, err := c.passBytes(n, consume); err != nil || !more {
			return err
		}
		if line, err := c.line(len("\r\n")); err != nil || len(line) > 0 {
			return orMalformed(err, "the end of a chunk")
		}
	}
}

func orMalformed(err error, what string) error {
	if err != nil {
		return err
	}
	return Malformed(what)
}

// line receives a line and returns it without its CRLF. The line is valid until the
// next call.
func (c *conn) line(longest int) ([]byte, error) {
	for {
		have := c.in[c.at:]
		i := bytes.IndexByte(have, '\n')
		switch {
		case i == 0 || i > 0 && have[i-1] != '\r':
			return nil, Malformed("a line that ends with LF alone")
		case i > longest || i < 0 && len(have) > longest:
			return nil, Malformed("a line that is too long")
		case i > 0:
			c.at += i + 1
			return have[:i-1], nil
		}
		if err := c.more(); err != nil {
			return nil, unexpected(err)
		}
	}
}

// trailer receives the trailers after the last chunk.
func (c *conn) trailer() error {
	c.head.trailer = len(c.head.fields)
	for size := 0; ; {
		line, err := c.line(syntax.MaxTrailer)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if size += len(line); size > syntax.MaxTrailer || len(c.head.fields) == mostFields {
			return errHeadTooLong
		}
		f, err := parseField(string(line))
		if err != nil {
			return err
		}
		c.head.fields = append(c.head.fields, f)
	}
}
