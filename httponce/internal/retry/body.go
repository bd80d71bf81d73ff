package retry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// makeRepeatable gives the request a GetBody if it has a body without one. Such
// a body has at most longest bytes. When makeRepeatable returns an error, the
// body is closed.
func makeRepeatable(r *http.Request, longest int64) error {
	if r.Body == nil || r.Body == http.NoBody || r.GetBody != nil {
		return nil
	}
	given := r.Body
	shut := sync.OnceFunc(func() { _ = given.Close() })
	defer shut()
	if r.ContentLength > longest {
		return tooLong(longest)
	}
	defer context.AfterFunc(r.Context(), shut)() // the reader of a pipe would not notice
	data, err := io.ReadAll(io.LimitReader(given, longest+1))
	switch {
	case r.Context().Err() != nil:
		return context.Cause(r.Context())
	case err != nil:
		return fmt.Errorf("httponce: read the request's body: nothing was sent: %w", err)
	case int64(len(data)) > longest:
		return tooLong(longest)
	case r.ContentLength > 0 && int64(len(data)) != r.ContentLength:
		return fmt.Errorf("httponce: nothing was sent: Request.ContentLength is %d, and the body has %d bytes", r.ContentLength, len(data))
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	switch {
	case len(r.Trailer) > 0: // need a body of unannounced length
	case len(data) == 0:
		r.Body, r.GetBody = http.NoBody, nil
	default:
		r.ContentLength = int64(len(data))
	}
	return renewBody(r)
}

func tooLong(longest int64) error {
	return fmt.Errorf("httponce: nothing was sent: the body is longer than %d bytes and can't be read twice: set Request.GetBody, or a higher Transport.MaxBody", longest)
}

// renewBody gives r its body again.
func renewBody(r *http.Request) (err error) {
	if r.GetBody == nil || r.Body == nil {
		return nil
	}
	if r.Body, err = r.GetBody(); err != nil {
		return fmt.Errorf("httponce: get the request's body again: %w", err)
	}
	return nil
}

// CloseBody closes the body of a request that is not sent.
func CloseBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
