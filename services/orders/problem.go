package orders

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/caller"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

func newProblem(status int, code, detail string) httponce.Problem {
	return httponce.Problem{Status: status, Code: code, Detail: detail}
}

var (
	errNotFound     = newProblem(http.StatusNotFound, "not_found", "There is nothing here.")
	errNoOrder      = newProblem(http.StatusNotFound, "order_not_found", "You have no such order.")
	errMethod       = newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "See Allow for the methods that this resource supports.")
	errUnauthorized = newProblem(http.StatusUnauthorized, "unauthorized", "Send a valid bearer token.")
	errTooLarge     = newProblem(http.StatusRequestEntityTooLarge, httponce.CodeBodyTooLarge, fmt.Sprintf("The body must have at most %d bytes.", maxBody))
	errEncoded      = newProblem(http.StatusUnsupportedMediaType, "content_encoding_unsupported", "The body has a Content-Encoding, which is not supported: send it without one.")
	errTooMany      = httponce.Problem{
		Status: http.StatusTooManyRequests, Code: httponce.CodeTooManyRequests, Detail: serving.TooManyRequests,
		Retryable: true, RetryAfter: time.Second,
	}
	errInternal = newProblem(http.StatusInternalServerError, "internal_error", "An internal error occurred.")
	errUnknown  = httponce.Problem{
		Status: http.StatusInternalServerError, Code: httponce.CodeOutcomeUnknown, Retryable: true,
		Detail: "The request may or may not have been carried out. Send it again with the same key: it is carried out only once.",
	}
	errUnavailable = httponce.Problem{
		Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "The service is unavailable. Send the request again later.",
		Retryable: true, RetryAfter: time.Second,
	}
)

func invalid(field, problem string) httponce.Problem {
	return newProblem(http.StatusBadRequest, "validation_error", field+": "+problem)
}

// problem returns the problem that the client gets for an error. It logs an error whose
// text the client does not get.
func (a *API) problem(r *http.Request, err error) httponce.Problem {
	var problem httponce.Problem
	var invalid *jsonbody.FieldError
	var forbidden *serving.Forbidden
	switch {
	case errors.As(err, &problem):
		return problem
	case errors.Is(err, serving.ErrNotFound):
		return errNotFound
	case errors.Is(err, serving.ErrMethodNotAllowed):
		return errMethod
	case errors.Is(err, serving.ErrTooManyRequests):
		return errTooMany
	case errors.As(err, &forbidden):
		return newProblem(http.StatusForbidden, "cross_origin", forbidden.Why)
	case errors.As(err, &invalid):
		return newProblem(http.StatusBadRequest, "validation_error", invalid.Error())
	case errors.Is(err, jsonbody.ErrTooLarge):
		return errTooLarge
	case errors.Is(err, jsonbody.ErrEncoded):
		return errEncoded
	case errors.Is(err, caller.ErrUnauthorized):
		return errUnauthorized
	case r.Context().Err() != nil:
		return errUnavailable // the client is gone and does not read it
	}
	var of *commandError
	var read *readError
	p := errInternal
	switch {
	case errors.As(err, &of):
		p = a.commandProblem(of.err)
	case errors.As(err, &read):
		p = errUnavailable
	}
	if p.Status >= http.StatusInternalServerError {
		a.cfg.Log.ErrorContext(r.Context(), "orders: request failed", "method", r.Method, "path", r.URL.Path, "code", p.Code, "error", err)
	}
	return p
}

// commandProblem returns the problem that the client gets for an error of a command. A
// failure that is kept has the same problem each time.
func (a *API) commandProblem(err error) httponce.Problem {
	p := httponce.ProblemOf(err)
	switch {
	case onlyonce.Failure(err).State == onlyonce.StateUnknown && p.Status == errUnknown.Status:
		return errUnknown
	case p.Code != httponce.CodeCommandFailed:
		return p
	case a.cfg.KeepFailures:
		return httponce.ProblemOf(onlyonce.ErrFailed)
	}
	return p
}

// A commandError is an error that onlyonce.Do or DoTx returned for a command.
type commandError struct{ err error }

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }
