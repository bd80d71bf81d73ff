package lambdaonce

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// HTTPHandler returns a handler for lambda.Start that serves the requests of an API with h, such
// as an http.ServeMux whose handlers are those of httponce.Wrap. The events may be those of an
// API Gateway REST API (proxy integration), of an HTTP API in payload format 1.0 or 2.0, and of
// a function URL. Any other event is an error.
//
// The context of a request ends a second before the invocation is killed, or a quarter of its
// time before if it has less than four seconds, and so does the context that httponce.Wrap and
// WrapTx give to a handler: see httponce.WithDeadline.
//
// A response is sent as a whole when h has returned; Flush is not supported. One that is too
// large for Lambda is replaced by a problem with the code CodeResponseTooLarge. A panic
// continues, so that Lambda reports it and starts the process again.
func HTTPHandler(h http.Handler) lambda.Handler {
	if h == nil {
		panic("lambdaonce: HTTPHandler: the handler is nil")
	}
	return httpHandler{h}
}

type httpHandler struct{ http.Handler }

var errAborted = errors.New("lambdaonce: the handler aborted its response")

func (h httpHandler) Invoke(ctx context.Context, payload []byte) (response []byte, err error) {
	e, err := readEvent(payload)
	if err != nil {
		return nil, err
	}
	if at := endOf(ctx); !at.IsZero() {
		var stop context.CancelFunc
		ctx, stop = until(httponce.WithDeadline(ctx, at), at)
		defer stop()
	}
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			err = errAborted
		} else if p != nil {
			panic(p)
		}
	}()
	w := newResponseWriter()
	r, malformed := e.request(context.WithValue(ctx, eventKey{}, e))
	if malformed != nil {
		http.Error(w, "The request is malformed: "+malformed.Error()+".", http.StatusBadRequest)
		return w.payload(e)
	}
	if h.ServeHTTP(w, r); r.Method == http.MethodHead {
		w.Body = nil
	}
	if response, err = w.payload(e); err != nil || len(response) <= maxPayload {
		return response, err
	}
	w = newResponseWriter()
	tooLarge.ServeHTTP(w, r)
	return w.payload(e)
}
