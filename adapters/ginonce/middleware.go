package ginonce

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"syscall"

	"github.com/gin-gonic/gin"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/callstack"
)

// Middleware returns a gin.HandlerFunc that runs the handlers after it once for each idempotency
// key. It panics on a nil Guard and on an invalid Config. After a replay and after a
// rejection, it aborts: the handlers after it do not run.
//
// Use it for a route, a group or the whole engine. After a middleware that calls Next on a goroutine
// of its own, such as timeout.New, it panics at the first request. A request that no route matches
// has the operation "POST /*", and a 404 or 405 in response to it is not stored.
func Middleware(g *onlyonce.Guard, cfg httponce.Config) gin.HandlerFunc {
	return serve(httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := of(r)
		in.enter(w, r, (*gin.Context).Next)
	}), cfg))
}

// WrapTx returns a gin.HandlerFunc that runs h once for each idempotency key, in a transaction
// that commits the rows of h and its response together: see httponce.WrapTx. It is the last
// handler of its route, and aborts after h. h may run more than once if the database requires a
// retry, each time with the context's Keys and Errors as they were.
//
//	r.POST("/orders", ginonce.WrapTx(guard, func(c *gin.Context, tx *sql.Tx) error {…}, cfg))
func WrapTx[TX any](g *onlyonce.TxGuard[TX], h func(*gin.Context, TX) error, cfg httponce.Config) gin.HandlerFunc {
	if h == nil {
		panic("ginonce: WrapTx: the handler is nil")
	}
	return serve(httponce.WrapTx(g, func(w http.ResponseWriter, r *http.Request, tx TX) (err error) {
		in := of(r)
		in.c.Keys, in.c.Errors = maps.Clone(in.keys), in.c.Errors[:in.errors]
		in.enter(w, r, func(c *gin.Context) { err = h(c, tx) })
		in.ran = false // nothing may run after the commit
		return err
	}, cfg))
}

// Context returns the context of gin in which the request is served. It is for the functions of
// a httponce.Config, and valid until they return. It panics if r is not the request that such
// a function got.
func Context(r *http.Request) *gin.Context { return of(r).c }

// An entry is the passage of a request through the middleware, and the context of that request.
type entry struct {
	context.Context
	c       *gin.Context
	outer   gin.ResponseWriter
	request *http.Request
	errors  int            // in the context before
	keys    map[any]any    // in the context before
	ran     bool           // the handlers after the middleware
	writer  responseWriter // of the handlers
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
		panic("ginonce: Context: the request is not one that ginonce has passed to a function of its httponce.Config")
	}
	return in
}

// noRoute is the pattern of a request that no route matches.
const noRoute = "/*"

// serve returns a gin.HandlerFunc that passes requests to h and then aborts.
func serve(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		checkGoroutine(c)
		in := &entry{Context: c.Request.Context(), c: c, outer: c.Writer, request: c.Request, errors: len(c.Errors), keys: c.Keys}
		r := c.Request.WithContext(in)
		if r.Pattern = c.FullPath(); r.Pattern == "" {
			r.Pattern = noRoute
		}
		h.ServeHTTP(c.Writer, r)
		if !in.ran {
			c.Abort()
		}
	}
}

// servesRequests is the name of the method that serves a request.
var servesRequests = callstack.Name((*gin.Engine).ServeHTTP)

// checkGoroutine panics if a middleware runs the handlers after it on a goroutine of its own, as
// one that responds when a time is over does: gin then gives the context to another request while
// they still use it. A context that no engine serves, such as one of a test, has no handlers, unless
// the test passes it to HandleContext.
func checkGoroutine(c *gin.Context) {
	if c.Handler() != nil && !callstack.Has(servesRequests, "testing.tRunner") {
		panic("ginonce: a middleware before this one runs it on another goroutine, as timeout.New does: when the time is over, gin gives the Context of the handler to another request, which can then get its response: " +
			"write http.TimeoutHandler(engine, …) instead, or give the calls of the handler a context with a deadline")
	}
}

// enter runs next with a writer to w and the request r. It restores those of the context, also
// after a panic, for the handlers before the middleware.
func (in *entry) enter(w http.ResponseWriter, r *http.Request, next func(*gin.Context)) {
	c := in.c
	in.ran, c.Request = true, r
	defer func() { c.Writer, c.Request = in.outer, in.request }()
	if _, native := w.(gin.ResponseWriter); native { // the request is not protected
		next(c)
		return
	}
	in.writer = newResponseWriter(w, in.outer.Status())
	httponce.OnDiscard(r, func() { in.writer.reset(http.StatusOK) })
	c.Writer = &in.writer
	next(c)
	if len(c.Errors) > in.errors && !in.writer.Written() && !in.writer.isSet {
		if last := c.Errors.Last().Err; isBroken(last) {
			httponce.Unknown(r, last)
		}
		in.writer.WriteHeader(http.StatusInternalServerError)
		httponce.DontStoreBody(r) // a handler before the middleware may write one
	}
	in.writer.WriteHeaderNow()
	if c.FullPath() == "" && (in.writer.Status() == http.StatusNotFound || in.writer.Status() == http.StatusMethodNotAllowed) {
		httponce.DontStore(r)
	}
}

// isBroken reports whether an error may be that of a panic from which gin.Recovery recovers
// without writing a response.
func isBroken(err error) bool {
	return errors.Is(err, http.ErrAbortHandler) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
