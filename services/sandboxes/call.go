package sandboxes

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// maxBody is far above the size of a valid body.
const maxBody = 64 << 10

// A call is one request while it is served.
type call struct {
	*http.Request
	w            http.ResponseWriter
	owner        string
	requestID    string
	idFromCaller bool // the caller chose the request's id
}

var requestName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func newCall(w http.ResponseWriter, r *http.Request) *call {
	c := &call{Request: r, w: w}
	if given := r.Header.Values("X-Request-Id"); len(given) == 1 && requestName.MatchString(given[0]) {
		c.requestID, c.idFromCaller = given[0], true
	} else {
		c.requestID = newID(requestIDs)
	}
	return c
}

// anonymous reports whether the caller has no token, so that it can choose any owner. The
// owner must be known.
func (c *call) anonymous() bool { return len(c.Header["Authorization"]) == 0 }

// id returns the ID of the sandbox in the path.
func (c *call) id() (string, error) {
	id := c.PathValue("id")
	if !isID(sandboxIDs, id) {
		return "", errNotFound()
	}
	return id, nil
}

// members returns the members of the object in the body. An empty body is an object
// without members.
func (c *call) members(names ...string) (jsonbody.Object, error) {
	body, err := jsonbody.Read(c.w, c.Request, maxBody)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	return jsonbody.Parse(body, names...)
}

// respond sends the response of a handler or, if it failed, that of its error.
func (a *API) respond(c *call, resp response, err error) {
	if err != nil {
		resp = a.problem(c.Context(), c, err).response(c.requestID)
	}
	id := c.requestID
	if resp.replayed && resp.requestID != "" && !c.idFromCaller {
		id = resp.requestID
	}
	c.w.Header().Set("X-Request-Id", id)
	resp.write(c.w)
}

// problem returns the problem that the caller gets for an error. It logs an error whose
// text the caller does not get.
func (a *API) problem(ctx context.Context, c *call, err error) *problem {
	var own *problem
	var limited httponce.Problem
	var body *jsonbody.FieldError
	var inFlight *onlyonce.InFlightError
	var forbidden *serving.Forbidden
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &limited):
		return errLimit(limited)
	case errors.Is(err, serving.ErrNotFound):
		return errNotFound()
	case errors.Is(err, serving.ErrMethodNotAllowed):
		return errMethod()
	case errors.Is(err, serving.ErrTooManyRequests):
		return errTooManyRequests()
	case errors.As(err, &forbidden):
		return errForbidden(forbidden.Why)
	case errors.As(err, &body):
		return errBody(body)
	case errors.Is(err, jsonbody.ErrTooLarge):
		return errTooLarge()
	case errors.Is(err, jsonbody.ErrEncoded):
		return errEncoded()
	case errors.Is(err, onlyonce.ErrMismatch):
		return errConflict()
	case errors.As(err, &inFlight):
		return errInProgress(inFlight.RetryAfter)
	case c.Context().Err() != nil:
		return errUnavailable() // the caller is gone and does not read it
	}
	a.cfg.Log.ErrorContext(ctx, "sandboxes: request failed", "request_id", c.requestID, "method", c.Method, "path", c.URL.Path, "error", err)
	if errors.As(err, new(unrepeatable)) {
		return errOutcomeUnknown()
	}
	if errors.Is(err, onlyonce.ErrUnavailable) || errors.Is(err, onlyonce.ErrUnknown) || errors.Is(err, errClosed) {
		return errUnavailable()
	}
	return errInternal()
}
