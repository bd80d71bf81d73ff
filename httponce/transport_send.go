package httponce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// A delivery is one logical call: a request that is sent until there is an
// answer.
type delivery struct {
	t        *Transport // with every field set
	r        *http.Request
	key      string
	began    time.Time
	attempts int
}

// newSending makes a request that can be sent again, with its key, and has the
// key persisted. When it returns an error, the body is closed.
func newSending(t *Transport, r *http.Request) (*delivery, error) {
	own := clone(r, r.Context())
	if own.Header == nil {
		own.Header = make(http.Header)
	}
	if err := t.makeRepeatable(own); err != nil {
		return nil, err
	}
	values := t.keyOf(r)
	fresh := len(values) == 0
	if fresh {
		values = []string{t.newKey()}
	}
	own.Header[t.Header] = values
	s := &delivery{t: t, r: own, key: strings.Join(values, ", "), began: time.Now()}
	if fresh && t.Persist != nil {
		if err := s.persist(); err != nil {
			closeBody(own)
			return nil, err
		}
	}
	return s, nil
}

// clone returns a copy that may be changed, but for its trailers: their values
// may come with the body.
func clone(r *http.Request, ctx context.Context) *http.Request {
	own := r.Clone(ctx)
	own.Trailer = r.Trailer
	return own
}

func (s *delivery) persist() error {
	shown := s.r.Clone(s.r.Context())
	if err := renewBody(shown); err != nil {
		return err
	}
	defer closeBody(shown)
	if err := s.t.Persist(shown.Context(), shown, s.key); err != nil {
		return fmt.Errorf("httponce: persist the key: nothing was sent: %w", err)
	}
	return nil
}

func (s *delivery) run() (*http.Response, error) {
	for {
		a := s.attempt()
		wait, again := s.again(a)
		if !again {
			if a.err != nil {
				return nil, s.noAnswer(a.err)
			}
			return a.give(), nil
		}
		a.discard()
		if err := s.pause(wait); err != nil {
			return nil, s.noAnswer(fmt.Errorf("%w, while waiting to send it again; before: %v", err, a.outcome()))
		}
	}
}

func (s *delivery) noAnswer(err error) error {
	return &NoAnswerError{Key: s.key, Attempts: s.attempts, Err: err}
}

// attempt sends the request once.
func (s *delivery) attempt() *attempt {
	ctx, cancel := context.WithCancelCause(s.r.Context())
	a := &attempt{cancel: cancel}
	r := clone(s.r, ctx)
	if s.attempts > 0 {
		if a.err = renewBody(r); a.err != nil {
			cancel(nil)
			a.final = true
			return a
		}
	}
	s.attempts++
	if limit := s.t.AttemptTimeout; limit > 0 {
		slow := fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded)
		timer := time.AfterFunc(limit, func() { cancel(slow) })
		defer func() {
			if !timer.Stop() {
				a.tooLate(slow)
			}
		}()
	}
	a.resp, a.err = s.t.Base.RoundTrip(r)
	if a.err != nil {
		if cause := context.Cause(ctx); cause != nil {
			a.err = cause
		}
		cancel(nil)
		a.final = untrusted(a.err)
		return a
	}
	if a.resp.Request == nil {
		a.resp.Request = s.r
	}
	if a.resp.Body == nil {
		a.resp.Body = http.NoBody
	}
	a.readAnswer(s.t.MaxAnswer)
	return a
}

// untrusted reports whether an error is about the server's certificate, which
// stays as it is.
func untrusted(err error) bool {
	var bad *tls.CertificateVerificationError
	return errors.As(err, &bad)
}

// again reports whether the request is sent again, and after how long.
func (s *delivery) again(a *attempt) (wait time.Duration, again bool) {
	ctx := s.r.Context()
	if a.final || !s.retried() || !a.worthAnother() || s.attempts >= s.t.MaxAttempts || ctx.Err() != nil {
		return 0, false
	}
	wait = s.backoff()
	if a.err == nil {
		if asked := retryAfter(a.resp.Header, time.Now()); asked > 0 {
			wait = lengthen(asked)
		}
	}
	end := s.began.Add(s.t.Budget)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return wait, wait < time.Until(end)
}

// retried reports whether the address is one that can be asked again: what is
// no URL of a server stays none.
func (s *delivery) retried() bool {
	u := s.r.URL
	return u != nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// backoff returns a random time of at most Backoff, doubled for every attempt
// before this one, up to MaxBackoff ("full jitter").
func (s *delivery) backoff() time.Duration {
	most := s.t.Backoff
	for range s.attempts - 1 {
		if most >= s.t.MaxBackoff/2 {
			most = s.t.MaxBackoff
			break
		}
		most *= 2
	}
	return rand.N(min(most, s.t.MaxBackoff) + 1)
}

// lengthen adds up to a tenth, so that clients that were told the same time do
// not come together.
func lengthen(d time.Duration) time.Duration {
	if d > math.MaxInt64/2 {
		return d
	}
	return d + rand.N(d/10+1)
}

// pause waits, unless the context ends before.
func (s *delivery) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.r.Context().Done():
		return context.Cause(s.r.Context())
	}
}
