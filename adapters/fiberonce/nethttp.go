package fiberonce

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// newRequest returns the request of an entry as one of net/http. It refers to no memory of
// fiber but the body, which is read before the handlers run.
func newRequest(in *entry) (*http.Request, error) {
	c, req := in.c, in.c.Request()
	u, err := url.ParseRequestURI(string(req.RequestURI()))
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	for name, value := range req.Header.All() {
		h.Add(string(name), string(value))
	}
	r := &http.Request{
		Method: strings.Clone(c.Method()), URL: u, RequestURI: u.RequestURI(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Host: string(req.Host()), RemoteAddr: c.RequestCtx().RemoteAddr().String(),
		Body: http.NoBody, Pattern: c.Route().Path,
	}
	length := int64(req.Header.ContentLength())
	if req.IsBodyStream() {
		in.stream = &streamedBody{from: req.BodyStream(), length: length, whole: length == 0}
		r.Body, r.ContentLength = in.stream, max(length, -1)
	} else if form := parsedForm(c); form != nil {
		r.Body, r.ContentLength = &body{read: func() ([]byte, error) { return formBytes(form, string(req.Header.MultipartFormBoundary())) }}, length
	} else if data := req.Body(); len(data) > 0 {
		r.Body, r.ContentLength = &body{data: data}, int64(len(data))
	}
	return r.WithContext(in), nil
}

// parsedForm returns the form that fasthttp has made of the body while it received it, or nil
// if the body is there as it was sent.
func parsedForm(c fiber.Ctx) *multipart.Form {
	h := &c.Request().Header
	if h.ContentLength() <= 0 || len(h.MultipartFormBoundary()) == 0 || len(h.ContentEncoding()) > 0 || c.App().Config().DisablePreParseMultipartForm {
		return nil
	}
	form, err := c.Request().MultipartForm()
	if err != nil {
		return nil // the handlers find the same mistake
	}
	return form
}

// formBytes writes a form with its names in order. fasthttp keeps neither the bytes of the body
// nor their order, and writes the form in a different order each time.
func formBytes(form *multipart.Form, boundary string) ([]byte, error) {
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	err := w.SetBoundary(boundary)
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		for _, value := range form.Value[name] {
			err = errors.Join(err, w.WriteField(name, value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[name] {
			err = errors.Join(err, writeFile(w, file))
		}
	}
	return text.Bytes(), errors.Join(err, w.Close())
}

func writeFile(w *multipart.Writer, file *multipart.FileHeader) error {
	part, err := w.CreatePart(file.Header)
	if err != nil {
		return err
	}
	content, err := file.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(part, content)
	return err
}

// A body is the body of a request, which stays in the memory of fiber.
type body struct {
	read func() ([]byte, error) // nil: it has been read
	data []byte
}

func (b *body) Read(p []byte) (int, error) {
	if b.read != nil {
		var err error
		if b.data, err = b.read(); err != nil {
			return 0, err
		}
		b.read = nil
	}
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

func (b *body) Close() error { return nil }

// A streamedBody is a body that fasthttp receives while it is read. fasthttp takes the end of the
// connection for the end of the body, and does not skip a part that nobody reads before the
// next request.
type streamedBody struct {
	from   io.Reader
	length int64 // as announced; negative: it is not
	size   int64 // that was read
	begun  bool
	whole  bool // all of it was read
}

// errNoLength is the error of a body of which nobody can tell whether it is complete.
var errNoLength = errors.New("the length of the body is not announced")

func (b *streamedBody) Read(p []byte) (int, error) {
	if b.begun = true; b.length < 0 {
		return 0, errNoLength
	}
	n, err := b.from.Read(p)
	b.size += int64(n)
	if b.whole = b.size == b.length; err == io.EOF && !b.whole {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *streamedBody) Close() error { return nil }

// writeStream writes the stream that is the body of a response. A stream that is not as long as
// announced is an error.
func writeStream(w io.Writer, response *fasthttp.Response) error {
	announced := response.Header.ContentLength()
	counted := &countingWriter{Writer: w}
	if err := response.BodyWriteTo(counted); err != nil {
		return err
	}
	if announced >= 0 && counted.n != announced {
		return io.ErrUnexpectedEOF
	}
	return nil
}

type countingWriter struct {
	io.Writer
	n int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += len(p)
	return w.Writer.Write(p)
}

// A failingReader is the rest of a stream that can't be read.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// A responseWriter keeps a response until it is sent through fiber.
type responseWriter struct {
	header http.Header
	status int
	body   []byte
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// send makes it the response of fiber.
func (w *responseWriter) send(c fiber.Ctx) {
	setHeader(c, w.header)
	c.Status(w.status)
	c.Response().SetBodyRaw(w.body)
}

// readHeader returns the header of fiber's response, without the fields that fasthttp sets when
// it sends the response.
func readHeader(c fiber.Ctx) http.Header {
	h := http.Header{}
	for name, value := range c.Response().Header.All() {
		h.Add(string(name), string(value))
	}
	for _, name := range []string{"Content-Length", "Connection", "Transfer-Encoding", "Server", "Date"} {
		h.Del(name)
	}
	return h
}

// setHeader replaces the header of fiber's response.
func setHeader(c fiber.Ctx, h http.Header) {
	to := &c.Response().Header
	for name := range readHeader(c) {
		to.Del(name)
	}
	for name, values := range h {
		for _, v := range values {
			to.Add(name, v)
		}
	}
}
