package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
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
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
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
