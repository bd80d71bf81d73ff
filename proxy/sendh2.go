package proxy

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// sendOver is send for an upstream that speaks HTTP/2.
func (rt *route) sendOver(w http.ResponseWriter, r *http.Request, a *onlyonce.Attempt) {
	if a != nil {
		rec := a.Record()
		r.Header[headerAttempt] = []string{strconv.Itoa(rec.Attempt)}
		r.Header[headerFence] = []string{strconv.FormatInt(rec.Fence, 10)}
	}
	var connected atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	p := rt.through
	p.Transport = once{rt.link}
	p.ModifyResponse = func(res *http.Response) error {
		if res.StatusCode == http.StatusBadGateway || res.StatusCode == http.StatusGatewayTimeout {
			httponce.Unknown(r)
		}
		return rt.modify(res)
	}
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if !connected.Load() {
			httponce.DontStore(r)
			rt.refuse(w, r, unreachable, err)
			return
		}
		httponce.Unknown(r)
		rt.refuse(w, r, lost(err), err)
	}
	p.ServeHTTP(w, r.WithContext(ctx))
}

// once is a link's Transport, kept from sending a request again: it does so, for a
// request with an idempotency key, when there is no body to be read.
type once struct{ *link }

func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		r.Body = io.NopCloser(emptyBody{})
	}
	return o.link.RoundTrip(r)
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
