package fiber2once

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/onlyonce-go/onlyonce/internal/bridge"
)

// These are why newRequest rejects a request.
var (
	errURL    = errors.New("the URL is malformed")
	errHeader = errors.New("the name of a header has a space")
)

// newRequest returns the request of an entry as one of net/http. It refers to no memory of
// fiber but the body, which is read before the handlers run. An error is the client's.
func newRequest(in *entry) (*http.Request, error) {
	c, req := in.c, in.c.Request()
	u, err := url.ParseRequestURI(string(req.RequestURI()))
	if err != nil {
		return nil, errURL
	}
	h := http.Header{}
	for name, value := range req.Header.All() {
		if bytes.IndexByte(name, ' ') >= 0 { // net/http rejects it; here, it would hide a key
			return nil, errHeader
		}
		h.Add(string(name), string(value))
	}
	r := &http.Request{
		Method: strings.Clone(c.Method()), URL: u, RequestURI: u.RequestURI(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Host: string(req.Host()), RemoteAddr: c.Context().RemoteAddr().String(),
		Body: http.NoBody, Pattern: c.Route().Path,
	}
	length := int64(req.Header.ContentLength())
	if req.IsBodyStream() {
		in.stream = &bridge.StreamedBody{From: req.BodyStream(), Length: length, Whole: length == 0}
		r.Body, r.ContentLength = in.stream, max(length, -1)
	} else if form := parsedForm(c); form != nil {
		r.Body, r.ContentLength = &bridge.Body{Receive: func() ([]byte, error) { return bridge.FormBytes(form, string(req.Header.MultipartFormBoundary())) }}, length
	} else if data := req.Body(); len(data) > 0 {
		r.Body, r.ContentLength = &bridge.Body{Rest: data}, int64(len(data))
	}
	return r.WithContext(in), nil
}

// parsedForm returns the form that fasthttp has made of the body while it received it, or nil
// if the body is there as it was sent.
func parsedForm(c *fiber.Ctx) *multipart.Form {
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

// writeStream writes the stream that is the body of a response. A stream that is not as long as
// announced is an error.
func writeStream(w io.Writer, response *fasthttp.Response) error {
	announced := response.Header.ContentLength()
	counted := &bridge.CountingWriter{Writer: w}
	if err := response.BodyWriteTo(counted); err != nil {
		return err
	}
	if announced >= 0 && counted.N != announced {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// send makes w the response of fiber.
func send(c *fiber.Ctx, w *bridge.Response) {
	setHeader(c, w.Fields)
	c.Status(w.Status)
	c.Response().SetBodyRaw(w.Body)
}

// readHeader returns the header of fiber's response, without the fields that fasthttp sets when
// it sends the response.
func readHeader(c *fiber.Ctx) http.Header {
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
func setHeader(c *fiber.Ctx, h http.Header) {
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
