package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// reject rejects a request with a problem that does not belong to a route.
func (c *Config) reject(w http.ResponseWriter, r *http.Request, p httponce.Problem, why error) {
	p.Err = why
	c.report(r, why)
	if r.ProtoMajor == 1 && p.Status == http.StatusBadRequest {
		w.Header().Set("Connection", "close") // no further request of this client is trusted
	}
	if c.Problem != nil {
		c.Problem(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}

// report tells OnError why a request was rejected or its response broke off; nil
// is ignored.
func (c *Config) report(r *http.Request, err error) {
	if c.OnError != nil && err != nil {
		c.OnError(r, fmt.Errorf("proxy: %w", err))
	}
}

// ambiguous returns the problem of a request that can be read in several ways.
func ambiguous(why error) httponce.Problem {
	p := requestInvalid
	p.Detail = capital(why.Error()) + ". " + p.Detail
	return p
}

var (
	requestInvalid = httponce.Problem{
		Code: "request_invalid", Status: http.StatusBadRequest, Title: "The request is ambiguous or malformed",
		Detail: "Nothing was done.",
	}
	noRoute = httponce.Problem{
		Code: "no_route", Status: http.StatusNotFound, Title: "No route matches", Detail: "No route matches this method and path. Nothing was done.",
	}
)

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// lostProblem returns the problem of a request with a key that may have been sent and got
// no response.
func (rt *route) lostProblem(r *http.Request, err error) httponce.Problem {
	p := noResponse
	if isLate(err) {
		p = noResponseInTime
	}
	switch {
	case onlyonce.Current(r.Context()) == nil: // it ran unprotected, and would run again
		return p
	case rt.Guard.HoldsUnknown():
		p.Detail += " It is not carried out again until a person finds out. Do not send it with a new key."
		return p
	}
	p.Detail += " Send it again with the same key, never with a new one."
	p.Retryable = true
	return p
}

func isLate(err error) bool {
	var timed net.Error // net/http's time-out for the head of a response is neither of the two
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout()
}

// lostError describes what happened to a request that was sent at the time began
// instead of a whole response. It is recorded and reported.
func lostError(began time.Time, err error) error {
	what := "failed"
	switch {
	case isLate(err):
		what = "timed out"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		what = "reset the connection"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		what = "closed the connection"
	}
	return fmt.Errorf("the upstream %s after %v: %w", what, since(began), err)
}

// statusError says of a request that was sent at the time began that the upstream's
// response leaves its outcome unknown.
func statusError(began time.Time, status int) error {
	return fmt.Errorf("the upstream responded with status %d after %v", status, since(began))
}

func since(began time.Time) time.Duration { return time.Since(began).Round(time.Millisecond) }

// unreachable returns the problem of a request that was not sent.
func unreachable(keyed bool) httponce.Problem {
	p := httponce.Problem{
		Code: "upstream_unreachable", Status: http.StatusServiceUnavailable, Title: "The upstream is unreachable",
		Detail: "The upstream is unreachable, and nothing was done. Send the request again later.", Retryable: true, RetryAfter: time.Second,
	}
	if keyed {
		p.Detail = strings.TrimSuffix(p.Detail, ".") + " with the same key."
	}
	return p
}

var busy = httponce.Problem{
	Code: "upstream_busy", Status: http.StatusServiceUnavailable, Title: "The upstream is busy",
	Detail: "The upstream is already handling the largest number of requests that the proxy sends at a time. Nothing was done. Send the request again later.", Retryable: true, RetryAfter: time.Second,
}

// These are the problems of requests that are sent on while their bodies arrive.
// Unlike those of httponce, they do not say that nothing was done: the beginning
// of the body may already have reached the upstream.
var (
	bodyTooLarge = httponce.Problem{
		Code: httponce.CodeBodyTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "The request body is too large",
		Detail: "The request body is longer than the server accepts.",
	}
	bodyUnreadable = httponce.Problem{
		Code: httponce.CodeBodyUnreadable, Status: http.StatusBadRequest, Title: "The request body is malformed or truncated",
		Detail: "The request body is malformed, truncated, or took too long to arrive.",
	}
	noResponse = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusBadGateway, Title: "The upstream did not respond",
		Detail: "The upstream did not respond. The request may or may not have taken effect.",
	}
	noResponseInTime = httponce.Problem{
		Code: "upstream_failed", Status: http.StatusGatewayTimeout, Title: "The upstream did not respond in time",
		Detail: "The upstream did not respond in time. The request may or may not have taken effect.",
	}
)
