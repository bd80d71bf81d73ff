package echoonce

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/callstack"
)

// Middleware returns a middleware that runs the handler inside it once for each idempotency key.
// It panics on a nil Guard and on an invalid Config.
//
// Use it for a route, a group or, with Use, the whole instance. With Pre, it would run before
// echo has found the route, and panics at the first request with a key. Inside a middleware that
// runs it on a goroutine of its own, such as middleware.Timeout, it panics at the first request. A
// request that no route matches has the operation "POST /*", and a 404 or 405 in response to it is
// not stored.
func Middleware(g *onlyonce.Guard, cfg httponce.Config) echo.MiddlewareFunc {
	protected := httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := of(r)
		in.enter(w, r, func() error { return in.next(in.c) })
	}), cfg)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return serve(protected, c, next) }
	}
}

// WrapTx returns a handler that runs h once for each idempotency key, in a transaction that
// commits the rows of h and its response together: see httponce.WrapTx. h may run more than
// once if the database requires a retry. What it has set in the echo.Context stays.
//
//	e.POST("/orders", echoonce.WrapTx(guard, func(c echo.Context, tx *sql.Tx) error {…}, cfg))
func WrapTx[TX any](g *onlyonce.TxGuard[TX], h func(echo.Context, TX) error, cfg httponce.Config) echo.HandlerFunc {
	if h == nil {
		panic("echoonce: WrapTx: the handler is nil")
	}
	protected := httponce.WrapTx(g, func(w http.ResponseWriter, r *http.Request, tx TX) error {
		in := of(r)
		in.enter(w, r, func() error { return h(in.c, tx) })
		return in.err
	}, cfg)
	return func(c echo.Context) error { return serve(protected, c, nil) }
}

// Context returns the context of echo in which the request is served. It is for the functions of
// a httponce.Config, and valid until they return. It panics if r is not the request that such
// a function got.
func Context(r *http.Request) echo.Context { return of(r).c }

// An entry is the passage of a request through the middleware, and the context of that request.
type entry struct {
	context.Context
	c       echo.Context
	next    echo.HandlerFunc
	outer   *echo.Response
	request *http.Request
	err     error // of the handler
}

type entryKey struct{}

func (in *entry) Value(key any) any {
	if key == (entryKey{}) {
		return in
	}
	return in.Context.Value(key)
}

func of(r *http.Request) *entry {
	in, ok := r.Context().Value(entryKey{}).(*entry)
	if !ok {
		panic("echoonce: Context: the request is not one that echoonce has passed to a function of its httponce.Config")
	}
	return in
}

// noRoute is the pattern of a request that no route matches.
const noRoute = "/*"

// routeOf returns the pattern of the route, which begins with the host if that has routes of its own
// (Echo.Host). It panics if the middleware runs before echo looks
// for the route: then each request would be the same operation.
func routeOf(c echo.Context) string {
	if path := c.Path(); path != "" {
		if host := c.Request().Host; c.Echo().Routers()[host] != nil { // as in the pattern of a ServeMux
			return host + path
		}
		return path
	}
	probe := c.Echo().AcquireContext()
	defer c.Echo().ReleaseContext(probe)
	probe.Reset(c.Request(), c.Response())
	if c.Echo().Router().Find(c.Request().Method, echo.GetPath(c.Request()), probe); probe.Path() != "" {
		panic("echoonce: the middleware runs before echo looks for the route: write e.Use(once), or pass it to the route, instead of e.Pre(once)")
	}
	return noRoute
}

// serve passes a request to h, and returns the error of the handler inside.
func serve(h http.Handler, c echo.Context, next echo.HandlerFunc) error {
	checkGoroutine(c)
	in := &entry{Context: c.Request().Context(), c: c, next: next, outer: c.Response(), request: c.Request()}
	r := in.request.WithContext(in)
	r.Pattern = routeOf(c)
	h.ServeHTTP(in.outer, r)
	if in.err != nil && in.outer.Committed {
		in.outer.Writer = sent{in.outer.Writer}
	}
	return in.err
}

// servesRequests is the name of the method that serves a request.
var servesRequests = callstack.Name((*echo.Echo).ServeHTTP)

// checkGoroutine panics if a middleware runs the ones inside it on a goroutine of its own, as one
// that responds when a time is over does: echo then gives the context to another request while they
// still use it. A test may call the middleware with a context that no Echo serves.
func checkGoroutine(c echo.Context) {
	if c.Path() != "" && !callstack.Has(servesRequests, "testing.tRunner") {
		panic("echoonce: a middleware around this one runs it on another goroutine, as middleware.Timeout does: when the time is over, echo gives the Context of the handler to another request, which can then get its response: " +
			"use middleware.ContextTimeout inside this one instead, or http.TimeoutHandler around the Echo")
	}
}

// enter runs the handler with a Response to w and the request r. It restores those of the
// context, also after a panic, for the middleware outside.
func (in *entry) enter(w http.ResponseWriter, r *http.Request, run func() error) {
	c := in.c
	defer func() {
		c.SetRequest(in.request)
		c.SetResponse(in.outer)
	}()
	c.SetRequest(r)
	if _, native := w.(*echo.Response); native { // the request is not protected
		in.err = run()
		return
	}
	response := echo.NewResponse(w, c.Echo())
	response.Status = http.StatusOK
	httponce.OnDiscard(r, func() { response.Status, response.Size, response.Committed = http.StatusOK, 0, false })
	c.SetResponse(response)
	if in.err = run(); in.err != nil {
		c.Error(in.err)
		if !response.Committed { // otherwise it would be the 200 of a command that has completed
			response.WriteHeader(http.StatusInternalServerError)
		}
	}
	if strings.TrimPrefix(r.Pattern, r.Host) == noRoute && response.Status == http.StatusNotFound || errors.Is(in.err, echo.ErrMethodNotAllowed) {
		httponce.DontStore(r)
	}
}

// A sent is the ResponseWriter of a response that has been sent. It drops what the error handler
// of an application writes when it gets the error, because not every error handler looks at
// Response.Committed.
type sent struct{ http.ResponseWriter }

func (w sent) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w sent) Header() http.Header         { return http.Header{} }
func (w sent) WriteHeader(int)             {}
func (w sent) Write(p []byte) (int, error) { return len(p), nil }
