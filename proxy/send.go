package proxy

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// send sends a keyed request, whose body has been read, for the attempt; nil: the
// store can't be reached, and the request runs without it. It is never sent
// twice.
func (rt *route) send(w http.ResponseWriter, r *http.Request, a *onlyonce.Attempt) {
	if rt.DontStoreBody {
		httponce.DontStoreBody(r)
	}
	held := rt.link.slots.take(w, r, true)
	if held == nil {
		httponce.DontStore(r)
		rt.refuse(w, r, busy, errBusy)
		return
	}
	defer func() { rt.table.report(r, held.giveBack()) }()
	rt.writeKey(r, a)
	if rt.link.HTTP2 {
		rt.sendOver(heldAnswer{w, held}, r, a)
		return
	}
	c, sent, err := rt.exchange(r, a)
	switch {
	case err == nil:
		rt.deliver(heldAnswer{w, held}, r, c)
	case errors.Is(err, errUnwritable):
		httponce.DontStore(r)
		rt.refuse(w, r, requestInvalid, err)
	case !sent:
		httponce.DontStore(r)
		rt.refuse(w, r, unreachable, err)
	default:
		httponce.Unknown(r)
		rt.refuse(w, r, lost(err), err)
	}
}

// writeKey writes the key into the request's header in the one way in which the
// upstream gets it, however the client wrote it.
func (rt *route) writeKey(r *http.Request, a *onlyonce.Attempt) {
	key := ""
	if a != nil {
		key = a.Record().ID.Key
	} else if read, err := rt.Once.ReadKey(r); err == nil {
		key = read
	}
	if key == "" {
		return
	}
	if rt.Once.KeyFormat.Syntax == httponce.StringOnly || strings.ContainsAny(key, " \",;\\") {
		key = quote(key)
	}
	if sent := r.Header[rt.header]; len(sent) != 1 || sent[0] != key {
		r.Header[rt.header] = []string{key}
	}
}

// exchange sends the request and receives the head of its answer; if that fails,
// it reports whether the request may have been sent.
func (rt *route) exchange(r *http.Request, a *onlyonce.Attempt) (c *conn, sent bool, err error) {
	q := asks.Get().(*ask)
	defer q.giveBack()
	if err := q.write(rt, r, a); err != nil {
		return nil, false, err
	}
	owner := ""
	if a != nil && !rt.link.OneRequestPerConn {
		owner = a.Record().ID.Tenant
	}
	c, sent, err = rt.link.write(r.Context(), q.b, owner)
	if !sent {
		return nil, false, err
	}
	if err == nil {
		err = q.rest(c, r, rt.link.StallTimeout)
	}
	if c.allow(rt.link.HeaderTimeout); err != nil { // it may have answered, and not taken the rest
		c.allow(slice)
	}
	if failed := c.readReply(r.Method); failed != nil {
		c.Close()
		return nil, true, errors.Join(err, failed)
	}
	c.whole = err == nil
	return c, true, nil
}

// write sends p on an idle connection of the owner, or on a new one: in that order
// if nothing of it could be sent. If that fails it reports whether any of it may
// have been sent. Without an owner the connection is new, and not used again.
func (l *link) write(ctx context.Context, p []byte, owner string) (c *conn, sent bool, err error) {
	if owner != "" {
		c = l.pool.take(ctx, owner)
	}
	if c != nil {
		if sent, err = c.write(p, l.StallTimeout); sent {
			return c, true, err
		}
		c.Close()
	}
	if c, err = l.dial(ctx); err != nil {
		return nil, false, err
	}
	c.owner = owner
	if sent, err = c.write(p, l.StallTimeout); !sent {
		c.Close()
	}
	return c, sent, err
}

// lost says that the answer did not come.
func lost(err error) httponce.Problem {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return outcomeLate
	}
	return outcomeLost
}

var (
	unreachable = httponce.Problem{
		Code: "upstream_unreachable", Status: http.StatusServiceUnavailable, Title: "The server behind can't be reached",
		Detail: "The server behind can't be reached, and nothing was done. Send the request again later, with the same key.", Retryable: true, RetryAfter: time.Second,
	}
	busy = httponce.Problem{
		Code: "upstream_busy", Status: http.StatusServiceUnavailable, Title: "The server behind is busy",
		Detail: "The server behind is already handling as many requests as it is sent at a time. Nothing was done. Send the request again later.", Retryable: true, RetryAfter: time.Second,
	}
	outcomeLost = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusBadGateway, Title: "The server behind gave no answer",
		Detail:    "The server behind gave no answer, and nobody knows whether the request took effect. Send it again with the same key, never with another.",
		Retryable: true,
	}
	outcomeLate = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusGatewayTimeout, Title: "The server behind gave no answer in time",
		Detail:    "The server behind gave no answer in time, and nobody knows whether the request took effect. Send it again with the same key, never with another.",
		Retryable: true,
	}
)
