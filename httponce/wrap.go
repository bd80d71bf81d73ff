package httponce

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// Wrap lets a request with an idempotency key run h once; a repeat gets the first
// answer. Requests without a key, and those of other methods, pass untouched. It
// panics on a Config that makes no sense.
//
// h's request has the attempt in its context (see onlyonce.Current). That
// context does not end when the client goes away, but when the lease is lost. An
// answer of 500 or more means that the command failed, and the next request
// with the key runs it again; see also DontStore and Unknown. A panic leaves
// the outcome unknown and goes on.
func Wrap(g *onlyonce.Guard, h http.Handler, cfg Config) http.Handler {
	if g == nil || h == nil {
		panic("httponce: Wrap: the Guard or the handler is nil")
	}
	return newLayer(g, cfg.withDefaults("Wrap"), &plain{guard: g, handler: h})
}

// A layer stands before a handler.
type layer struct {
	guard *onlyonce.Guard
	cfg   Config
	keys  keyForm
	quota *quota // nil: none
	way   way
	dates dates
}

// A way is how a layer's handler is run.
type way interface {
	// open serves a request that is not protected.
	open(l *layer, w http.ResponseWriter, r *http.Request)
	// keyed serves one that is.
	keyed(l *layer, c *call)
}

func newLayer(g *onlyonce.Guard, cfg Config, way way) *layer {
	return &layer{guard: g, cfg: cfg, keys: newKeyForm(cfg), quota: newQuota(cfg), way: way}
}

// A call is a request that is protected.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	scratch *scratch
	request onlyonce.Request
	x       *exchange // the one that ran the handler
	ran     bool      // a new command ran
}

func (l *layer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(l.cfg.Methods, r.Method) {
		l.way.open(l, w, r)
		return
	}
	values, given := r.Header[l.cfg.Header]
	if !given && !l.cfg.Required {
		l.way.open(l, w, r)
		return
	}
	if !given {
		l.refuse(w, r, keyMissing)
		return
	}
	key, wrong := l.keys.read(values)
	if wrong != "" {
		p := keyInvalid
		p.Detail = wrong
		l.refuse(w, r, p)
		return
	}
	l.protect(w, r, key)
}

// protect serves a request with a valid key.
func (l *layer) protect(w http.ResponseWriter, r *http.Request, key string) {
	tenant := l.cfg.Tenant(r)
	if tenant == "" {
		l.refuseKeyed(w, r, key, tenantMissing)
		return
	}
	s := takeScratch()
	defer s.giveBack()
	if !l.readBody(s, w, r, key) {
		return
	}
	c := &s.call
	*c = call{w: w, r: r, scratch: s, request: onlyonce.Request{
		ID:   onlyonce.ID{Tenant: fit(tenant), Operation: fit(l.operation(r)), Key: key},
		Wait: l.wait(r),
	}}
	if l.cfg.Fingerprint != nil {
		c.request.Fingerprint = l.cfg.Fingerprint(r, s.body)
	} else {
		c.request.Fingerprint = s.fingerprint(r, "bytes", s.body)
	}
	if l.quota != nil {
		allowed, wait := l.quota.enter(tenant)
		if allowed == nil {
			p := tooMany
			p.RetryAfter = wait
			l.refuseKeyed(w, r, key, p)
			return
		}
		defer func() { l.quota.leave(tenant, allowed, c.ran) }()
	}
	l.way.keyed(l, c)
}

// readBody reads the body, or refuses the request.
func (l *layer) readBody(s *scratch, w http.ResponseWriter, r *http.Request, key string) bool {
	var err error
	if s.body, err = readBody(s.body, r, l.cfg.MaxBody); err == nil {
		return true
	}
	var outer *http.MaxBytesError
	p := bodyUnreadable
	if errors.Is(err, errBodyTooLarge) || errors.As(err, &outer) {
		p = bodyTooLarge
	}
	p.Err = err
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // what is left of the body is not read
	}
	l.refuseKeyed(w, r, key, p)
	return false
}

func (l *layer) refuseKeyed(w http.ResponseWriter, r *http.Request, key string, p Problem) {
	p.Key = key
	l.refuse(w, r, p)
}

// fit makes a part of an ID short enough for every store.
func fit(part string) string {
	if len(part) <= longestKey {
		return part
	}
	return fmt.Sprintf("sha256:%x", onlyonce.Fingerprint([]byte(part)))
}

func (l *layer) operation(r *http.Request) string {
	switch {
	case l.cfg.Operation != nil:
		return l.cfg.Operation(r)
	case r.Pattern == "":
		return r.Method + " " + r.URL.Path
	case strings.HasPrefix(r.Pattern, r.Method+" "):
		return r.Pattern
	}
	return r.Method + " " + r.Pattern
}

// plain runs an http.Handler and records its answer after it.
type plain struct {
	guard   *onlyonce.Guard
	handler http.Handler
}

func (p *plain) open(_ *layer, w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

func (p *plain) keyed(l *layer, c *call) {
	a, err := p.guard.Begin(c.r.Context(), c.request)
	switch {
	case err != nil && l.cfg.RunUnprotected && errors.Is(err, onlyonce.ErrUnavailable):
		p.unprotected(c, err)
	case err != nil:
		l.refuseCall(c, err)
	case a.Replayed():
		l.replay(c, a)
	default:
		c.ran = true
		p.run(l, c, a)
	}
}

// run runs the handler under an attempt.
func (p *plain) run(l *layer, c *call, a *onlyonce.Attempt) {
	ctx, stop := a.Context(c.r.Context())
	defer stop()
	x := newExchange(l, c, ctx)
	x.attempt = a
	defer x.body.Close()
	returned := false
	defer func() {
		if !returned {
			x.abandon(recover())
		}
	}()
	p.handler.ServeHTTP(&x.answer, x.request(c))
	returned = true
	l.finish(c, x)
}

// finish records the answer, and then lets it leave.
func (l *layer) finish(c *call, x *exchange) {
	stage := x.answer.end()
	if x.refused != nil {
		l.refuseCall(c, x.refused)
		_ = x.attempt.Settle(&x.run, onlyonce.Failure(x.refused)) // unless InTx did; observed
		return
	}
	var err error
	if stage != fixed {
		s, _ := x.settlement(stage)
		err = x.attempt.Settle(&x.run, s)
	}
	switch {
	case stage == streamed:
		maps.Copy(c.w.Header(), x.answer.trailers)
	case stage == hijacked:
	case errors.Is(err, onlyonce.ErrLost):
		l.refuseCall(c, err)
	default:
		l.leave(x, err == nil)
	}
}

// unprotected runs the handler although nothing can be recorded.
func (p *plain) unprotected(c *call, err error) {
	p.guard.Observe(c.r.Context(), onlyonce.Event{
		Outcome: onlyonce.OutcomeUnprotected, Record: onlyonce.Record{ID: c.request.ID},
		Fingerprint: c.request.Fingerprint, Err: err,
	})
	b := &body{data: c.scratch.body}
	defer b.Close()
	r := c.r.WithContext(c.r.Context())
	r.Body = b
	c.w.Header().Set(headerProtected, "no")
	p.handler.ServeHTTP(c.w, r)
}
