package proxy

import (
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
)

// passer sends on what is not protected.
func (rt *route) passer() httputil.ReverseProxy {
	return httputil.ReverseProxy{
		Rewrite:        rt.rewrite,
		Transport:      rt.link,
		ModifyResponse: rt.modify,
		ErrorHandler:   rt.failed,
		BufferPool:     buffers{},
		ErrorLog:       log.New(io.Discard, "", 0), // Config.Report is told
	}
}

// RoundTrip sends a request by the version of HTTP that it needs.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	if isGRPC(r) {
		return l.h2.RoundTrip(r)
	}
	return l.transport.RoundTrip(r)
}

func (rt *route) pass(w http.ResponseWriter, r *http.Request) {
	if len(r.Header["Upgrade"]) > 0 && !rt.upgrades(r) {
		delete(r.Header, "Upgrade")
	}
	if rt.MaxBody > 0 && r.ContentLength > rt.MaxBody {
		rt.refuseBody(w, r, bodyTooLarge, nil)
		return
	}
	if _, received := r.Body.(*whole); !received && (r.ContentLength < 0 || r.ContentLength > shortBody) {
		timed := *r // net/http looks at its own body when it answers
		timed.Body = newPaced(w, r, rt.table.cfg.BodyTimeout)
		if rt.MaxBody > 0 {
			timed.Body = http.MaxBytesReader(w, timed.Body, rt.MaxBody)
		}
		r = &timed
	}
	w.Header()["Content-Type"] = nil // else net/http guesses what the server behind does not say
	broken := true
	defer func() {
		if broken {
			rt.table.report(r, errBrokenOff)
		}
	}()
	rt.through.ServeHTTP(w, r)
	broken = false
}

var errBrokenOff = errors.New("the answer broke off, and so did what the client got of it")

// upgrades reports whether a request may change to another protocol: WebSocket
// only, for another may be HTTP/2, and carry requests that nobody looks at.
func (rt *route) upgrades(r *http.Request) bool {
	up := r.Header["Upgrade"]
	return !rt.NoUpgrade && r.Method == http.MethodGet && r.ContentLength == 0 && len(up) == 1 && strings.EqualFold(up[0], "websocket")
}

func (rt *route) rewrite(pr *httputil.ProxyRequest) {
	l, in, out := rt.link, pr.In, pr.Out
	sendTo(l, in, out.URL)
	if out.Host = ""; l.KeepHost {
		out.Host = in.Host
	}
	for _, name := range rt.DropHeader {
		out.Header.Del(name)
	}
	for name, vs := range rt.SetHeader {
		out.Header[http.CanonicalHeaderKey(name)] = vs
	}
	setForwarded(out.Header, in, rt.TrustForwarded)
	if 0 < in.ContentLength && in.ContentLength <= shortBody {
		out.Body = &paced{ReadCloser: out.Body}
	}
}

// sendTo makes u the upstream's, with the request's path and query as they came.
func sendTo(l *link, r *http.Request, u *url.URL) {
	u.Scheme, u.Host, u.RawQuery, u.ForceQuery = l.URL.Scheme, l.URL.Host, r.URL.RawQuery, r.URL.ForceQuery
	came := escapedPath(r)
	if l.base == "" && came == r.URL.Path && came == u.EscapedPath() {
		return // most are plain
	}
	u.Path, u.RawPath = strings.TrimSuffix(l.URL.Path, "/")+r.URL.Path, l.base+came
	if u.EscapedPath() != u.RawPath && !strings.HasPrefix(u.RawPath, "//") {
		u.Opaque = u.RawPath // else net/url would write it in its own way
	}
}

func (rt *route) modify(res *http.Response) error {
	rt.setAnswer(res.Header)
	return nil
}

func (rt *route) setAnswer(h http.Header) {
	for _, name := range rt.DropAnswer {
		h.Del(name)
	}
	for name, vs := range rt.SetAnswer {
		h[http.CanonicalHeaderKey(name)] = vs
	}
}

// failed answers a request whose answer did not come.
func (rt *route) failed(w http.ResponseWriter, r *http.Request, err error) {
	delete(w.Header(), "Content-Type")
	var tooLarge *http.MaxBytesError
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &tooLarge):
		rt.refuseBody(w, r, bodyTooLarge, err)
	case errors.Is(err, errBodyUnreadable), r.Context().Err() != nil:
		rt.refuseBody(w, r, bodyUnreadable, err) // net/http ends the context when the client is gone, but then, too
	case errors.As(err, &op) && op.Op == "dial":
		rt.refuse(w, r, unreachable, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		rt.refuse(w, r, noAnswerInTime, err)
	default:
		rt.refuse(w, r, noAnswer, err)
	}
}

// refuseBody refuses a request of which the rest is not received.
func (rt *route) refuseBody(w http.ResponseWriter, r *http.Request, p httponce.Problem, why error) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	rt.refuse(w, r, p, why)
}

var (
	bodyTooLarge = httponce.Problem{
		Code: "body_too_large", Status: http.StatusRequestEntityTooLarge, Title: "The request's body is too large",
		Detail: "Send less.",
	}
	bodyUnreadable = httponce.Problem{
		Code: "body_unreadable", Status: http.StatusBadRequest, Title: "The request's body did not come to its end",
		Detail: "It is malformed, or too slow.",
	}
	noAnswer = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusBadGateway, Title: "The server behind gave no answer",
		Detail: "Nobody knows whether the request took effect.",
	}
	noAnswerInTime = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusGatewayTimeout, Title: "The server behind gave no answer in time",
		Detail: "Nobody knows whether the request took effect.",
	}
)

// buffers are what answers are copied through.
type buffers struct{}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (buffers) Get() []byte  { return copyBuffers.Get().(*[32 << 10]byte)[:] }
func (buffers) Put(b []byte) { copyBuffers.Put((*[32 << 10]byte)(b)) }
