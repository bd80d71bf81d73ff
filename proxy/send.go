package proxy

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
)

// send sends a keyed request, whose body has been received, to the upstream. It is
// never sent twice. a is the attempt; it is nil if the store is unreachable and the
// request runs without it.
func (rt *route) send(w http.ResponseWriter, r *http.Request, a *onlyonce.Attempt) {
	if rt.DontStoreBody {
		httponce.DontStoreBody(r)
	}
	tenant := ""
	if a != nil {
		tenant = a.Record().ID.Tenant
	}
	held := rt.conns.slots.Take(w, r, true, tenant)
	if held == nil {
		httponce.DontStore(r)
		rt.reject(w, r, busy, slots.ErrBusy)
		return
	}
	defer func() { rt.cfg.report(r, held.GiveBack()) }()
	rt.writeKey(r, a)
	httpfield.DropDeadlines(r.Header)
	if rt.conns.HTTP2 || isGRPC(r) {
		rt.sendHTTP2(held.Response(w), r, a)
		return
	}
	began := time.Now()
	res, sent, err := rt.exchange(r, a, tenant)
	switch {
	case err == nil:
		rt.deliver(held.Response(w), r, res, began)
	case errors.Is(err, h1.ErrUnwritable):
		httponce.DontStore(r)
		rt.reject(w, r, requestInvalid, err)
	case !sent:
		httponce.DontStore(r)
		rt.reject(w, r, unreachable(true), err)
	default:
		err = lostError(began, err)
		httponce.Unknown(r, err)
		rt.reject(w, r, rt.lostProblem(r, err), err)
	}
}

// writeKey sets the request's header to the key in the form in which the upstream
// gets it, however the client wrote it.
func (rt *route) writeKey(r *http.Request, a *onlyonce.Attempt) {
	key := ""
	if a != nil {
		key = a.Record().ID.Key
	} else if read, err := rt.Idempotency.ReadKey(r); err == nil {
		key = read
	}
	if key == "" {
		return
	}
	if rt.Idempotency.KeyFormat.Syntax == httponce.StringOnly || strings.ContainsAny(key, " \",;\\") {
		key = quote(key)
	}
	if sent := r.Header[rt.header]; len(sent) != 1 || sent[0] != key {
		r.Header[rt.header] = []string{key}
	}
}

// exchange sends the request and receives the head of its response. If it fails, sent
// reports whether any of the request may have been sent.
func (rt *route) exchange(r *http.Request, a *onlyonce.Attempt, tenant string) (res *h1.Response, sent bool, err error) {
	q, err := rt.outgoing(r, a)
	if err != nil {
		return nil, false, err
	}
	defer q.Release()
	return rt.conns.client.Send(r.Context(), q, r.Body, rt.conns.owner(tenant))
}

// quote writes a key as an RFC 9651 string.
func quote(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
