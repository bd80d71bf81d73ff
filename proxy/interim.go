package proxy

import (
	"context"
	"net/http"

	"github.com/onlyonce-go/onlyonce/internal/interim"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
)

// An interimLimit passes on the interim responses (103) to one request, and cancels
// the request if there are too many. It also cancels it for a 101, which comes here
// only from an upstream that speaks HTTP/2, where no protocol can be switched.
// ReverseProxy clears the header with each of them, including headers that the proxy has set.
type interimLimit struct {
	slots.Response
	passed   int
	old      bool // the client speaks HTTP/1.0, which has no interim responses
	heldBack bool // it is not flushed
	end      context.CancelCauseFunc
}

// boundInterim returns the request with a context that the limit can cancel, and a
// ResponseWriter that replaces w.
func boundInterim(w slots.Response, r *http.Request) (*http.Request, *interimLimit) {
	ctx, end := context.WithCancelCause(r.Context())
	return r.WithContext(ctx), &interimLimit{Response: w, old: !r.ProtoAtLeast(1, 1), end: end}
}

// FlushError is called by http.ResponseController. ReverseProxy flushes every response
// whose length was not announced.
func (l *interimLimit) FlushError() error {
	if l.heldBack {
		return nil
	}
	return l.Response.FlushError()
}

func (l *interimLimit) WriteHeader(status int) {
	if 100 <= status && status < 200 {
		if l.passed++; l.passed > h1.MaxInterim || status == http.StatusSwitchingProtocols {
			l.end(h1.ErrInterim)
			return
		}
		if !l.old {
			dropProxyHeaders(l.Header())
			interim.Write(l.Response, status)
		}
		return
	}
	if h := l.Header(); len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // otherwise net/http would guess one
	}
	l.Response.WriteHeader(status)
}
