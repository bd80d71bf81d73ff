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

func reject(status int, code, detail string) httponce.Problem {
	return httponce.Problem{Status: status, Code: code, Detail: detail}
}

var (
	errNotFound     = reject(http.StatusNotFound, "not_found", "There is nothing here.")
	errNoOrder      = reject(http.StatusNotFound, "order_not_found", "You have no such order.")
	errMethod       = reject(http.StatusMethodNotAllowed, "method_not_allowed", "See Allow for what this resource takes.")
	errUnauthorized = reject(http.StatusUnauthorized, "unauthorized", "Send a valid bearer token.")
	errTooLarge     = reject(http.StatusRequestEntityTooLarge, httponce.CodeBodyTooLarge, fmt.Sprintf("The body must have at most %d bytes.", maxBody))
	errEncoded      = reject(http.StatusUnsupportedMediaType, "content_encoding_unsupported", "The body has a Content-Encoding, and none is decoded here: send it without.")
	errTooMany      = httponce.Problem{
		Status: http.StatusTooManyRequests, Code: httponce.CodeTooManyRequests, Detail: serving.TooManyRequests,
		Retryable: true, RetryAfter: time.Second,
	}
	errInternal = reject(http.StatusInternalServerError, "internal_error", "Something went wrong on our side.")
	errUnknown  = httponce.Problem{
		Status: http.StatusInternalServerError, Code: httponce.CodeOutcomeUnknown, Retryable: true,
		Detail: "It may have been carried out, or not. Send the request again, with the same key: it is carried out once.",
	}
	errUnavailable = httponce.Problem{
		Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "The service can't answer now; ask again.",
		Retryable: true, RetryAfter: time.Second,
	}
)

func invalid(field, problem string) httponce.Problem {
	return reject(http.StatusBadRequest, "validation_error", field+": "+problem)
}

// problem says what the client is told of an error. What it is not told is
// logged.
func (a *API) problem(r *http.Request, err error) httponce.Problem {
	var told httponce.Problem
	var fault *jsonbody.Fault
	var forbidden *serving.Forbidden
	switch {
	case errors.As(err, &told):
		return told
	case errors.Is(err, serving.ErrNotFound):
		return errNotFound
	case errors.Is(err, serving.ErrMethodNotAllowed):
		return errMethod
	case errors.Is(err, serving.ErrTooManyRequests):
		return errTooMany
	case errors.As(err, &forbidden):
		return reject(http.StatusForbidden, "cross_origin", forbidden.Why)
	case errors.As(err, &fault):
		return reject(http.StatusBadRequest, "validation_error", fault.Error())
	case errors.Is(err, jsonbody.ErrTooLarge):
		return errTooLarge
	case errors.Is(err, jsonbody.ErrEncoded):
		return errEncoded
	case errors.Is(err, caller.ErrUnauthorized):
		return errUnauthorized
	case r.Context().Err() != nil:
		return errUnavailable // nobody reads it
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

// commandProblem says what the client is told of a command that DoTx did not
// answer. A failure that is kept is told in the same way each time.
func (a *API) commandProblem(err error) httponce.Problem {
	p := httponce.ProblemOf(err)
	switch {
	case p.Code != httponce.CodeCommandFailed:
		return p
	case a.guard.Failure(err).State == onlyonce.StateUnknown:
		return errUnknown
	case a.cfg.KeepFailures:
		return httponce.ProblemOf(onlyonce.ErrFailed)
	}
	return p
}

// A commandError is what onlyonce.DoTx said of a command.
type commandError struct{ err error }

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }
