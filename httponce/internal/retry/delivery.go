// Package retry sends a request until there is a response: with the same key
// and the same bytes each time, with pauses between the attempts, and within a
// budget.
package retry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// Options are the settings of a Transport, with their defaults filled in.
type Options struct {
	Base           http.RoundTripper
	MaxAttempts    int
	Budget         time.Duration // after it, no attempt begins
	AttemptTimeout time.Duration // 0: none
	Backoff        time.Duration // the longest first wait
	MaxBackoff     time.Duration
	MaxBody        int64 // of a body without GetBody
	MaxResponse    int64 // of a response body that is read before the response is returned
	Protocol       Protocol
}

// A Delivery is one logical call: a request that is sent until there is a
// response.
type Delivery struct {
	o        *Options
	r        *http.Request
	began    time.Time
	attempts int
}

// New makes a request that can be sent again, with these values of the key's
// header. When it returns an error, the body is closed.
func New(o *Options, r *http.Request, key []string) (*Delivery, error) {
	if r.Context().Err() != nil {
		CloseBody(r)
		return nil, context.Cause(r.Context())
	}
	own := clone(r, r.Context())
	if own.Header == nil {
		own.Header = make(http.Header)
	}
	if err := makeRepeatable(own, o.MaxBody); err != nil {
		return nil, err
	}
	maps.DeleteFunc(own.Header, func(name string, _ []string) bool { return strings.EqualFold(name, o.Protocol.Header) })
	own.Header[o.Protocol.Header] = key
	return &Delivery{o: o, r: own, began: time.Now()}, nil
}

// clone returns a copy that may be changed, except for its trailers: their
// values may come with the body.
func clone(r *http.Request, ctx context.Context) *http.Request {
	own := r.Clone(ctx)
	own.Trailer = r.Trailer
	return own
}

// Show calls persist with a copy of the request, whose body may be read to the
// end. When it returns an error, the body is closed and nothing is sent.
func (d *Delivery) Show(persist func(context.Context, *http.Request) error) (err error) {
	defer func() {
		if err != nil {
			CloseBody(d.r)
		}
	}()
	shown := d.r.Clone(d.r.Context())
	if err := renewBody(shown); err != nil {
		return err
	}
	defer CloseBody(shown)
	if err := persist(shown.Context(), shown); err != nil {
		return fmt.Errorf("httponce: persist the key: nothing was sent: %w", err)
	}
	return nil
}

// Attempts returns how often the request has been sent.
func (d *Delivery) Attempts() int { return d.attempts }

// Run sends the request until there is a response, or returns why there is none.
func (d *Delivery) Run() (*http.Response, error) {
	for {
		a := d.attempt()
		wait, again := d.shouldRetry(a)
		if !again {
			if a.err != nil {
				return nil, a.err
			}
			return a.response(), nil
		}
		a.discard()
		if err := d.pause(wait); err != nil {
			return nil, fmt.Errorf("%w, while waiting to send it again; before: %v", err, a.outcome())
		}
	}
}

// attempt sends the request once.
func (d *Delivery) attempt() *attempt {
	ctx, cancel := context.WithCancelCause(d.r.Context())
	a := &attempt{cancel: cancel}
	r := clone(d.r, ctx)
	if d.attempts > 0 {
		if a.err = renewBody(r); a.err != nil {
			cancel(nil)
			a.final = true
			return a
		}
	}
	d.attempts++
	if limit := d.o.AttemptTimeout; limit > 0 {
		slow := fmt.Errorf("no response within %v: %w", limit, context.DeadlineExceeded)
		timer := time.AfterFunc(limit, func() { cancel(slow) })
		defer func() {
			if !timer.Stop() {
				a.tooLate(slow)
			}
		}()
	}
	a.resp, a.err = d.o.Base.RoundTrip(r)
	if a.err != nil {
		if cause := context.Cause(ctx); cause != nil {
			a.err = cause
		}
		cancel(nil)
		a.final = untrusted(a.err)
		return a
	}
	if a.resp.Request == nil {
		a.resp.Request = d.r
	}
	if a.resp.Body == nil {
		a.resp.Body = http.NoBody
	}
	a.readBody(d.o.MaxResponse)
	return a
}

// untrusted reports whether an error is about the server's certificate, which
// another attempt will not change.
func untrusted(err error) bool {
	var bad *tls.CertificateVerificationError
	return errors.As(err, &bad)
}

// shouldRetry reports whether the request is sent again, and after how long.
func (d *Delivery) shouldRetry(a *attempt) (wait time.Duration, shouldRetry bool) {
	ctx := d.r.Context()
	if a.final || !d.hasAddress() || !a.worthAnother(&d.o.Protocol) || d.attempts >= d.o.MaxAttempts || ctx.Err() != nil {
		return 0, false
	}
	wait = d.backoff()
	if a.err == nil {
		if asked := retryAfter(a.resp.Header, time.Now()); asked > 0 {
			wait = lengthen(asked)
		}
	}
	end := d.began.Add(d.o.Budget)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return wait, wait < time.Until(end)
}

// hasAddress reports whether the URL is that of a server. With another one, no
// attempt can succeed.
func (d *Delivery) hasAddress() bool {
	u := d.r.URL
	return u != nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// backoff returns a random time of at most Backoff, doubled for every attempt
// before this one, up to MaxBackoff ("full jitter").
func (d *Delivery) backoff() time.Duration {
	most := d.o.Backoff
	for range d.attempts - 1 {
		if most >= d.o.MaxBackoff/2 {
			most = d.o.MaxBackoff
			break
		}
		most *= 2
	}
	return rand.N(min(most, d.o.MaxBackoff) + 1)
}

// lengthen adds up to a tenth, so that clients that were told the same time do
// not return at once.
func lengthen(d time.Duration) time.Duration {
	if d > math.MaxInt64/2 {
		return d
	}
	return d + rand.N(d/10+1)
}

// pause waits for so long, or until the context ends.
func (d *Delivery) pause(wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-d.r.Context().Done():
		return context.Cause(d.r.Context())
	}
}
