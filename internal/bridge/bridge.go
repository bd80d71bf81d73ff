// Package bridge has what the adapters to frameworks that are not built on net/http share: the
// response that a handler of net/http writes, and the body of its request.
package bridge

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
)

// A Response is a ResponseWriter that keeps a response until it is sent through the framework.
type Response struct {
	Fields http.Header
	Status int // 0: nothing has been written
	Body   []byte
}

func (w *Response) Header() http.Header { return w.Fields }

func (w *Response) WriteHeader(status int) {
	if w.Status == 0 && status >= http.StatusOK {
		w.Status = status
	}
}

func (w *Response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.Body = append(w.Body, p...)
	return len(p), nil
}

// BrokenOff returns a reader of the body that ends with err instead of its rest.
func (w *Response) BrokenOff(err error) io.Reader {
	return io.MultiReader(bytes.NewReader(w.Body), failingReader{err})
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// A CountingWriter counts the bytes that are written.
type CountingWriter struct {
	io.Writer
	N int
}

func (w *CountingWriter) Write(p []byte) (int, error) {
	w.N += len(p)
	return w.Writer.Write(p)
}

// A Body is the body of a request that stays in memory of the framework.
type Body struct {
	// Receive returns the body. It is called at the first read. nil: the body is Rest.
	Receive func() ([]byte, error)
	// Rest is what has not been read.
	Rest []byte
}

func (b *Body) Read(p []byte) (int, error) {
	if b.Receive != nil {
		var err error
		if b.Rest, err = b.Receive(); err != nil {
			return 0, err
		}
		b.Receive = nil
	}
	if len(b.Rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.Rest)
	b.Rest = b.Rest[n:]
	return n, nil
}

func (b *Body) Close() error { return nil }

// A StreamedBody is a body that the framework receives while it is read, and of which fasthttp
// takes the end of the connection for the end. fasthttp does not skip a part that nobody reads
// before the next request.
type StreamedBody struct {
	From   io.Reader
	Length int64 // as announced; negative: it is not
	Begun  bool
	Whole  bool // all of it was read

	size int64 // that was read
}

// errNoLength is the error of a body of which nobody can tell whether it is complete.
var errNoLength = errors.New("the length of the body is not announced")

func (b *StreamedBody) Read(p []byte) (int, error) {
	if b.Begun = true; b.Length < 0 {
		return 0, errNoLength
	}
	n, err := b.From.Read(p)
	b.size += int64(n)
	if b.Whole = b.size == b.Length; err == io.EOF && !b.Whole {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *StreamedBody) Close() error { return nil }

// FormBytes writes a form with its names in order. fasthttp keeps neither the bytes of a form nor
// their order, and writes the form in a different order each time.
func FormBytes(form *multipart.Form, boundary string) ([]byte, error) {
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
