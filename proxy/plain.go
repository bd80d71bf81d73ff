package proxy

import (
	"errors"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/interim"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// isPlain reports whether a request that is not protected can be sent by the client of h1,
// which needs about half of the processor time of net/http: it came over HTTP/1, goes to an
// upstream without TLS, has a short body of known length, and asks for nothing that
// concerns its connection.
func (rt *route) isPlain(r *http.Request) bool {
	if rt.conns.unkeyed == nil || r.ProtoMajor != 1 || r.ContentLength < 0 || r.ContentLength > h1.FirstPiece {
		return false
	}
	for _, name := range [...]string{"Upgrade", "Expect", "Te", "Trailer"} {
		if len(r.Header[name]) > 0 {
			return false
		}
	}
	return true
}

// forwardPlain serves a plain request. It returns false if the request has to be sent
// again: a safe one, for which the upstream closed the connection without a response.
func (rt *route) forwardPlain(w slots.Response, r *http.Request) bool {
	q, err := rt.outgoing(r, nil)
	if err != nil {
		rt.respondError(w, r, err)
		return true
	}
	defer q.Release()
	if r.ProtoAtLeast(1, 1) { // HTTP/1.0 has no interim responses
		q.OnInterim = func(status int, fields []h1.Field) {
			addFields(w.Header(), fields)
			interim.Write(w, status)
			clear(w.Header())
		}
	}
	res, _, err := rt.conns.unkeyed.Send(r.Context(), q, r.Body, rt.conns.owner("unkeyed"))
	switch {
	case err == nil:
		rt.passOn(w, res)
	case errors.Is(err, h1.ErrIdleClosed) && r.ContentLength == 0 && hasSafeMethod(r):
		return false
	case errors.Is(err, h1.ErrUnwritable):
		rt.rejectBody(w, r, requestInvalid, err)
	default:
		rt.respondError(w, r, err)
	}
	return true
}

// passOn writes the upstream's response to the client as it comes, and releases it.
func (rt *route) passOn(w slots.Response, res *h1.Response) {
	h, fields := w.Header(), res.Header()
	rt.addHeader(h, fields)
	announceTrailer(h, fields)
	w.WriteHeader(res.Status())
	streams := res.Length() < 0 || httpfield.IsEventStream(contentType(fields))
	if streams {
		_ = w.FlushError() // if it fails, so does the next Write
	}
	gone := false
	err := res.Body(func(piece []byte) bool {
		_, err := w.Write(piece)
		if err == nil && streams {
			err = w.FlushError()
		}
		gone = err != nil
		return !gone
	})
	if gone || err != nil {
		res.Close()
		panic(http.ErrAbortHandler) // the client must see that the response is truncated
	}
	setTrailer(h, res.Trailer())
	res.Release()
}

// announceTrailer announces the trailers that the upstream has announced, without those
// that are not passed on.
func announceTrailer(h http.Header, fields []h1.Field) {
	for _, f := range fields {
		if f.Name != "Trailer" {
			continue
		}
		for name := range strings.SplitSeq(f.Value, ",") {
			if name = http.CanonicalHeaderKey(syntax.TrimBlanks(name)); httpfield.IsToken(name) && returnsTrailer(name) {
				h.Add("Trailer", name)
			}
		}
	}
}
