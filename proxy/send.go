package proxy

import (
	"context"
	"errors"
	"net/http"
	"os"
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
	if rt.link.HTTP2 {
		rt.sendOver(w, r, a)
		return
	}
	c, sent, err := rt.exchange(r, a)
	switch {
	case err == nil:
		rt.deliver(w, r, c)
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

// exchange sends the request and receives the head of its answer; if that fails,
// it reports whether the request may have been sent.
func (rt *route) exchange(r *http.Request, a *onlyonce.Attempt) (c *conn, sent bool, err error) {
	q := asks.Get().(*ask)
	defer q.giveBack()
	if err := q.write(rt, r, a); err != nil {
		return nil, false, err
	}
	c, sent, err = rt.link.write(r.Context(), q.b)
	if !sent {
		return nil, false, err
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

// write sends p on an idle connection, or on a new one: in that order if nothing
// of it could be sent. If that fails it reports whether any of it may have been
// sent.
func (l *link) write(ctx context.Context, p []byte) (c *conn, sent bool, err error) {
	if c = l.pool.take(ctx); c != nil {
		if sent, err = c.write(p, l.StallTimeout); sent {
			return c, true, err
		}
		c.Close()
	}
	if c, err = l.dial(ctx); err != nil {
		return nil, false, err
	}
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
		Detail: "Nothing was done. Send the request again later, with the same key.", Retryable: true, RetryAfter: time.Second,
	}
	outcomeLost = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusBadGateway, Title: "The server behind gave no answer",
		Detail:    "Nobody knows whether the request took effect. Send it again with the same key, never with another.",
		Retryable: true,
	}
	outcomeLate = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusGatewayTimeout, Title: "The server behind gave no answer in time",
		Detail:    "Nobody knows whether the request took effect. Send it again with the same key, never with another.",
		Retryable: true,
	}
)
