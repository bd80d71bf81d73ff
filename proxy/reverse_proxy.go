package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
)

// reverseProxy returns the reverse proxy for requests that are not protected.
func (rt *route) reverseProxy() httputil.ReverseProxy {
	return httputil.ReverseProxy{
		Rewrite:        rt.rewrite,
		Transport:      rt.conns,
		ModifyResponse: rt.modify,
		ErrorHandler:   rt.respondError,
		BufferPool:     buffers{},
		ErrorLog:       log.New(io.Discard, "", 0), // Config.OnError is called instead
	}
}

// forward serves a request that is not protected.
func (rt *route) forward(w http.ResponseWriter, r *http.Request) {
	if len(r.Header["Upgrade"]) > 0 && !rt.upgrades(r) {
		delete(r.Header, "Upgrade")
	}
	rt.dropRequestTrailers(r.Trailer) // which have been received if the key was looked for in the body
	if rt.MaxBody > 0 && r.ContentLength > rt.MaxBody {
		rt.rejectBody(w, r, bodyTooLarge, nil)
		return
	}
	held := rt.conns.slots.Take(w, r, false, "")
	if held == nil {
		rt.rejectBody(w, r, busy, slots.ErrBusy)
		return
	}
	broken := true
	defer func() {
		switch ended := held.GiveBack(); {
		case ended != nil:
			rt.cfg.report(r, ended)
		case broken:
			rt.cfg.report(r, errBrokenOff)
		}
	}()
	if _, received := r.Body.(bufferedBody); !received && r.ContentLength != 0 {
		body := slots.NewTimedBody(w, r, rt.cfg.BodyTimeout)
		held.Watch(body)
		if r.Body = body; rt.MaxBody > 0 && body.IsLong() {
			r.Body = http.MaxBytesReader(w, body, rt.MaxBody)
		}
	}
	if !rt.isPlain(r) || !rt.forwardPlain(held.Response(w), r) {
		r, bounded := boundInterim(held.Response(w), r)
		defer bounded.end(nil)
		rt.passThrough.ServeHTTP(bounded, r)
		dropTrailers(w.Header())
	}
	broken = false
}

var errBrokenOff = errors.New("the response broke off, and the client got only a part of it")

// upgrades reports whether a request may switch protocols. Only WebSocket is allowed:
// another protocol could be HTTP/2, whose requests the proxy would not see.
func (rt *route) upgrades(r *http.Request) bool {
	up := r.Header["Upgrade"]
	return !rt.NoUpgrade && r.Method == http.MethodGet && r.ContentLength == 0 && len(up) == 1 && strings.EqualFold(up[0], "websocket")
}

// rewrite makes the request that is sent to the upstream.
func (rt *route) rewrite(pr *httputil.ProxyRequest) {
	l, in, out := rt.conns, pr.In, pr.Out
	sendTo(l, in, out.URL)
	if out.Host = ""; l.KeepHost {
		out.Host = in.Host
	}
	for name := range out.Header {
		if rt.replaces(name) {
			delete(out.Header, name)
		}
	}
	for name, vs := range rt.SetHeader {
		out.Header[http.CanonicalHeaderKey(name)] = vs
	}
	setForwarded(out.Header, in)
	if out.Body == nil {
		respellKeys(out.Header)
	}
	if _, done := in.Body.(*slots.TimedBody); !done && 0 < in.ContentLength && in.ContentLength <= slots.ShortBody {
		out.Body = &slots.TimedBody{ReadCloser: out.Body}
	}
}

// respellKeys writes the names of headers with a key in lower case, as HTTP/2 does.
// net/http sends a request without a body again, whatever its method, if it finds one
// of these names in canonical form.
func respellKeys(h http.Header) {
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if vs, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = vs
		}
	}
}

// sendTo sets u to the upstream's URL with the request's path and query.
func sendTo(l *upstreamConns, r *http.Request, u *url.URL) {
	u.Scheme, u.Host, u.RawQuery, u.ForceQuery = l.URL.Scheme, l.URL.Host, r.URL.RawQuery, r.URL.ForceQuery
	if l.base == "" {
		return // the path is in normal form, which net/url writes unchanged
	}
	u.Path, u.RawPath = strings.TrimSuffix(l.URL.Path, "/")+r.URL.Path, l.base+r.URL.EscapedPath()
}

// modify checks and changes the head of the upstream's response.
func (rt *route) modify(res *http.Response) error {
	if context.Cause(res.Request.Context()) == h1.ErrInterim {
		return h1.ErrInterim // the response came before net/http noticed that the request is canceled
	}
	if res.StatusCode < 100 || res.StatusCode > 999 {
		return h1.Malformed("the status")
	}
	if length, ok := res.Header["Content-Length"]; ok && (len(length) > 1 || res.ContentLength < 0) {
		return h1.Malformed("the length") // net/http passes it on if it comes over HTTP/2
	}
	if res.StatusCode == http.StatusResetContent { // net/http passes on its body
		res.Body = emptyOnly{res.Body}
	}
	dropProxyHeaders(res.Header)
	rt.changeHeader(res.Header)
	return nil
}

// errBody is the error of a response that has a body although its status allows none: a client may
// expect the next response where it begins.
var errBody = h1.Malformed("a body where none can be")

// An emptyOnly is a body that must be empty.
type emptyOnly struct{ io.ReadCloser }

func (b emptyOnly) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		return 0, errBody
	}
	return n, err
}

// changeHeader drops and sets headers of a response as the route says.
func (rt *route) changeHeader(h http.Header) {
	for _, name := range rt.DropResponseHeader {
		h.Del(name)
	}
	for name, vs := range rt.SetResponseHeader {
		h[http.CanonicalHeaderKey(name)] = vs
	}
}

// respondError responds to a request that got no response from the upstream.
func (rt *route) respondError(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &tooLarge):
		rt.rejectBody(w, r, bodyTooLarge, err)
	case context.Cause(r.Context()) == h1.ErrInterim:
		rt.reject(w, r, noResponse, h1.ErrInterim)
	case errors.Is(err, slots.ErrBodyUnreadable), r.Context().Err() != nil:
		rt.rejectBody(w, r, bodyUnreadable, err) // net/http cancels the context when the client has gone, and when its body is malformed
	case errors.As(err, &op) && op.Op == "dial":
		rt.reject(w, r, unreachable(false), err)
	case errors.As(err, &timeout) && timeout.Timeout():
		rt.reject(w, r, noResponseInTime, err)
	default:
		rt.reject(w, r, noResponse, err)
	}
}

// rejectBody rejects a request without receiving the rest of its body.
func (rt *route) rejectBody(w http.ResponseWriter, r *http.Request, p httponce.Problem, why error) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	rt.reject(w, r, p, why)
}

// buffers is the pool of the buffers through which responses are copied.
type buffers struct{}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (buffers) Get() []byte  { return copyBuffers.Get().(*[32 << 10]byte)[:] }
func (buffers) Put(b []byte) { copyBuffers.Put((*[32 << 10]byte)(b)) }
