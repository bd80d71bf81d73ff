package fiberonce

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
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
	if req.IsBodyStream() {
		r.Body, r.ContentLength = &body{read: req.Body}, max(int64(req.Header.ContentLength()), -1)
	} else if data := req.Body(); len(data) > 0 {
		r.Body, r.ContentLength = &body{data: data}, int64(len(data))
	}
	return r.WithContext(in), nil
}

// A body is the body of a request, which stays in the memory of fiber.
type body struct {
	read func() []byte // nil: it has been read
	data []byte
}

func (b *body) Read(p []byte) (int, error) {
	if b.read != nil {
		b.data, b.read = b.read(), nil
	}
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

func (b *body) Close() error { return nil }

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
