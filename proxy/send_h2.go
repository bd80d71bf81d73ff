package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
)

// sendHTTP2 is send for an upstream that speaks HTTP/2.
func (rt *route) sendHTTP2(w slots.Response, r *http.Request, a *onlyonce.Attempt) {
	if a != nil {
		rec := a.Record()
		r.Header[headerAttempt] = []string{strconv.Itoa(rec.Attempt)}
		r.Header[headerFence] = []string{strconv.FormatInt(rec.Fence, 10)}
	}
	var connected atomic.Bool
	r, bounded := boundInterim(w, r)
	defer bounded.end(nil)
	late := func() { bounded.end(os.ErrDeadlineExceeded) }
	var answered atomic.Bool
	untaken := newPause(rt.link.StallTimeout, func() {
		if !answered.Load() {
			late()
		}
	})
	defer untaken.Stop()
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	p := rt.through
	p.Transport = noRetryTransport{rt.link}
	p.ModifyResponse = func(res *http.Response) error {
		if res.StatusCode == http.StatusBadGateway || res.StatusCode == http.StatusGatewayTimeout {
			httponce.Unknown(r)
		}
		if limit := rt.link.BodyTimeout; limit > 0 && !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
			tooLong := time.AfterFunc(limit, late)
			context.AfterFunc(r.Context(), func() { tooLong.Stop() })
		}
		answered.Store(true)
		res.Body = &receiving{res.Body, newPause(rt.link.StallTimeout, late)}
		return rt.modify(res)
	}
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if context.Cause(ctx) == os.ErrDeadlineExceeded {
			err = os.ErrDeadlineExceeded
		}
		if !connected.Load() {
			httponce.DontStore(r)
			rt.reject(w, r, unreachable, err)
			return
		}
		httponce.Unknown(r)
		rt.reject(w, r, lostProblem(err), err)
	}
	sent := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		sent.Body = &sending{r.Body, untaken}
	}
	p.ServeHTTP(bounded, sent)
	dropOurs(w.Header()) // what is left to be sent: trailers
}

// A pause is one that may last so long, and then has consequences.
type pause struct {
	*time.Timer
	most time.Duration
}

func newPause(most time.Duration, then func()) pause {
	t := time.AfterFunc(most, then)
	t.Stop()
	return pause{t, most}
}

func (p pause) begin() { p.Reset(p.most) }

// sending is a request's body. What was read of it has been taken once more of it
// is read.
type sending struct {
	io.ReadCloser
	pause pause
}

func (b *sending) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.pause.Stop(); err == nil {
		b.pause.begin()
	}
	return n, err
}

// receiving is an answer's body. While the client takes what has come, nobody
// waits for more.
type receiving struct {
	io.ReadCloser
	pause pause
}

func (b *receiving) Read(p []byte) (int, error) {
	b.pause.begin()
	defer b.pause.Stop()
	return b.ReadCloser.Read(p)
}

// noRetryTransport is an upstream's Transport, kept from sending a request again: it does so, for a
// request with an idempotency key, when there is no body to be read.
type noRetryTransport struct{ *upstreamConns }

func (o noRetryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		r.Body = io.NopCloser(emptyBody{})
	}
	return o.upstreamConns.RoundTrip(r)
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
