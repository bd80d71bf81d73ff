package fiberonce

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/bridge"
	"github.com/onlyonce-go/onlyonce/internal/callstack"
	"github.com/onlyonce-go/onlyonce/internal/funcsource"
)

// An entry is the passage of a request through the middleware, and the context of that request.
type entry struct {
	context.Context
	c      fiber.Ctx
	before http.Header          // of the response, before the handlers
	handed *http.Request        // to the handlers; nil: they have not run
	passed bool                 // the request is not protected
	ended  bool                 // the response is complete
	cut    error                // why the stream that is the response could not be read to its end
	stream *bridge.StreamedBody // nil: all of the request was received before the handlers
	err    error                // of the handlers, if the request is not protected
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
		panic("fiberonce: Context: the request is not one that fiberonce has passed to a function of its httponce.Config")
	}
	return in
}

// serve returns a fiber.Handler that passes requests to the handler that wrap makes.
func serve(cfg httponce.Config, wrap func(httponce.Config) http.Handler) fiber.Handler {
	isNamed := cfg.Operation != nil
	cfg.Tenant, cfg.Operation = copied(cfg.Tenant), copied(cfg.Operation)
	h := wrap(cfg)
	var checked sync.Map // routes that need no further check
	var self fiber.Handler
	self = func(c fiber.Ctx) error {
		route := c.Route()
		checkGoroutine(route)
		if _, ok := checked.Load(route); !ok {
			checkRoute(c, self, isNamed)
			checked.Store(route, true)
		}
		in := &entry{Context: c.Context(), c: c, before: readHeader(c)}
		r, err := newRequest(in)
		if err != nil {
			c.Response().Header.SetConnectionClose()
			return fiber.NewError(fiber.StatusBadRequest, err.Error())
		}
		defer in.endConnection() // also after a panic
		w := &bridge.Response{Fields: in.before.Clone()}
		if in.run(h, w, r) {
			w = &bridge.Response{Fields: in.before.Clone()}
			rejectLost(cfg, w, r)
		}
		if in.stream != nil && in.stream.Begun && in.stream.Length < 0 {
			return fiber.NewError(fiber.StatusLengthRequired, "the Content-Length is missing")
		}
		if w.Status != 0 {
			send(c, w)
		}
		if in.cut != nil { // the client must see that the response is truncated
			c.Response().SetBodyStream(w.BrokenOff(in.cut), -1)
		}
		return in.err
	}
	return self
}

// endConnection closes the connection after the response if a part of the request's body was left
// unread, which would otherwise be read as the next request.
func (in *entry) endConnection() {
	if in.stream != nil && !in.stream.Whole && (in.stream.Begun || !in.passed) {
		in.c.Response().Header.SetConnectionClose()
	}
}

// run passes the request to h, and reports whether httponce broke off the response after the
// handlers had returned, because the lease was lost. It does so with a panic, which would end a
// process of fiber, although nothing of the response has been sent.
func (in *entry) run(h http.Handler, w http.ResponseWriter, r *http.Request) (broken bool) {
	defer func() {
		if !in.ended {
			return // a handler panics
		}
		if p := recover(); p == http.ErrAbortHandler {
			broken = true
		} else if p != nil {
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

// rejectLost rejects a request whose attempt has lost its lease.
func rejectLost(cfg httponce.Config, w http.ResponseWriter, r *http.Request) {
	p := httponce.ProblemOf(onlyonce.ErrLost)
	if cfg.Problem != nil {
		cfg.Problem(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}

// copied returns a function like f whose results are valid after the request has ended.
func copied(f func(*http.Request) string) func(*http.Request) string {
	if f == nil {
		return nil
	}
	return func(r *http.Request) string { return strings.Clone(f(r)) }
}

// checkRoute panics if the middleware self is where it can't protect the route of c.
func checkRoute(c fiber.Ctx, self fiber.Handler, isNamed bool) {
	route := c.Route()
	isRoute := func(r fiber.Route) bool { // not only of the same path, as one of Use may be
		return r.Method == route.Method && len(r.Handlers) > 0 && len(route.Handlers) > 0 && &r.Handlers[0] == &route.Handlers[0]
	}
	if !isNamed && !slices.ContainsFunc(c.App().GetRoutes(true), isRoute) {
		panic("fiberonce: the middleware runs before fiber looks for the route: pass it to the route, as in app.Post(path, once, handler), instead of to Use or Group, or set Config.Operation")
	}
	own, _ := funcsource.Of(self)
	inside := false
	for _, h := range route.Handlers {
		switch file, name := funcsource.Of(h); {
		case file == own:
			inside = true
		case inside && strings.HasSuffix(file, "/middleware/recover/recover.go"):
			panic("fiberonce: recover.New() is after the middleware, which could not tell a panic from an error: write app.Use(recover.New()) before it")
		case inside && strings.HasSuffix(file, "/middleware/timeout/timeout.go") && !strings.Contains(name, "NewWithContext"):
			panic("fiberonce: timeout.New responds while its handler is still running, so that a repeat would run at the same time: give the calls of the handler a context with a deadline instead")
		case inside && isNetHTTP(file, name):
			panic("fiberonce: a handler of net/http is after the middleware, but its request is another one, for which httponce.Unknown and DontStore do nothing, and InTx commits nothing with the response: " +
				"write a fiber.Handler that calls adaptor.HTTPHandler(h)(c), and call fiberonce.Unknown(c, cause) in it if the outcome is unknown")
		}
	}
}

// isNetHTTP reports whether a function is the fiber.Handler that fiber or its adaptor has made of an
// http.Handler.
func isNetHTTP(file, name string) bool {
	own := strings.HasSuffix(file, "/middleware/adaptor/adaptor.go") || strings.Contains(name, "gofiber/fiber/v3.")
	return own && strings.Contains(name, "HTTPHandler")
}

// servesRequests returns the name of the method that serves a request. It is private, and may have
// another name in a later version of fiber.
var servesRequests = sync.OnceValue(func() string { return callstack.Name(fiber.New().Handler()) })

// checkGoroutine panics if a handler runs the middleware on a goroutine of its own, as one that
// responds when a time is over does: what it writes then, and what fiber writes for it, are in the
// response of the handlers that still run. A context that no app serves has a route without handlers.
func checkGoroutine(route *fiber.Route) {
	if len(route.Handlers) > 0 && !callstack.Has(servesRequests()) {
		panic("fiberonce: a handler before the middleware runs it on another goroutine, as timeout.New does: when the time is over, its response and that of the handler would be mixed: " +
			"write fasthttp.TimeoutHandler(app.Handler(), …) instead, or give the calls of the handler a context with a deadline")
	}
}

// enter runs next, lets the app write the error that it returns, and writes the response to w.
func (in *entry) enter(w http.ResponseWriter, r *http.Request, next func() error) error {
	c := in.c
	if in.stream != nil && in.stream.Begun { // httponce has read it
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		c.Request().SetBody(data)
	}
	if own, ok := w.(*bridge.Response); ok { // the request is not protected
		in.passed = true
		for name, values := range own.Fields {
			if _, ok := in.before[name]; !ok {
				c.Set(name, values[0])
			}
		}
		in.err = next()
		return in.err
	}
	setHeader(c, in.before) // as it was, if next has run before
	c.Response().ResetBody()
	c.Status(http.StatusOK)
	in.handed, in.ended = r, false
	outer := c.Context()
	defer c.SetContext(outer)
	c.SetContext(r.Context())
	err := next()
	if err != nil && c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(http.StatusInternalServerError) // as fiber does
	}
	if isEmpty := !c.Response().IsBodyStream() && len(c.Response().Body()) == 0; err != nil && isEmpty && c.Response().StatusCode() == http.StatusOK {
		c.Status(http.StatusInternalServerError) // otherwise it would be the response of a command that has completed
	}
	h := w.Header()
	clear(h)
	maps.Copy(h, readHeader(c))
	response := c.Response()
	w.WriteHeader(response.StatusCode())
	if !response.IsBodyStream() {
		_, _ = w.Write(response.Body())
	} else {
		in.cut = writeStream(w, response)
	}
	in.ended = true
	return err
}
