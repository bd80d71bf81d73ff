package httponce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
)

// A middleware stands before a handler.
type middleware struct {
	guard  *onlyonce.Guard
	cfg    Config
	keys   keysyntax.Reader
	quota  *resources.Quota
	runner runner
	dates  dates
}

// A runner runs a middleware's handler.
type runner interface {
	// serveUnkeyed serves a request that is not protected.
	serveUnkeyed(l *middleware, w http.ResponseWriter, r *http.Request)
	// serveKeyed serves one that is.
	serveKeyed(l *middleware, c *call)
}

func newMiddleware(g *onlyonce.Guard, cfg Config, r runner) *middleware {
	u := cfg.Usage
	if u == nil {
		u = usageOf(g)
	}
	return &middleware{guard: g, cfg: cfg, keys: cfg.KeyFormat.reader(), quota: resources.NewQuota(&u.counters, cfg.limits()), runner: r}
}

// A call is a request that is protected.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	scratch *callBuffers
	request onlyonce.Request
	x       *exchange         // the one that ran the handler
	attempt *onlyonce.Attempt // that ran; nil: none
	stored  int               // bytes that were stored
}

// again returns the request, whose body has been read, with a body.
func (c *call) again(ctx context.Context, b *body) *http.Request {
	r := c.r.WithContext(ctx)
	if r.Body != http.NoBody {
		r.Body = b
	}
	return r
}

func (l *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(l.cfg.Methods, r.Method) {
		l.runner.serveUnkeyed(l, w, r)
		return
	}
	values, given := r.Header[l.cfg.Header]
	inBody := l.cfg.KeyInBody != nil && r.ContentLength != 0
	if !given && !inBody {
		if l.cfg.Required {
			l.refuseUnread(w, r, "", keyMissing)
			return
		}
		l.runner.serveUnkeyed(l, w, r)
		return
	}
	key := ""
	if given {
		var wrong string
		if key, wrong = l.keys.Read(values); wrong != "" {
			l.refuseUnread(w, r, "", invalidKey(wrong))
			return
		}
	}
	l.protect(w, r, key, inBody)
}

// protect serves a request with a valid key, or with one that its body may have.
// What it uses up is counted before its body is read.
func (l *middleware) protect(w http.ResponseWriter, r *http.Request, key string, inBody bool) {
	tenant := shortenPart(l.cfg.Tenant(r))
	if tenant == "" {
		l.refuseUnread(w, r, key, tenantMissing)
		return
	}
	id := onlyonce.ID{Tenant: tenant, Operation: shortenPart(l.operation(r)), Key: key}
	if l.isInside(r, id) {
		l.runner.serveUnkeyed(l, w, r)
		return
	}
	s := takeBuffers()
	defer s.giveBack()
	c := &s.call
	*c = call{w: w, r: r, scratch: s, request: onlyonce.Request{ID: id, SkipFingerprint: l.cfg.comparesNothing(), Wait: l.wait(r)}}
	if p := l.admit(c); p != nil {
		l.refuseUnread(w, r, key, *p)
		return
	}
	defer l.free(c)
	if l.cfg.Fingerprint == nil && !l.cfg.SkipFingerprint {
		s.begin(r, "bytes")
	}
	if !l.readBody(c) {
		return
	}
	if inBody {
		if p := l.keyInBody(c); p != nil {
			l.refuseKeyed(w, r, key, *p)
			return
		}
		if c.request.ID.Key == "" || l.isInside(r, c.request.ID) {
			b := &body{data: s.body}
			defer b.Close()
			again := c.again(r.Context(), b)
			again.ContentLength = int64(len(s.body))
			l.runner.serveUnkeyed(l, w, again)
			return
		}
	}
	if !l.cfg.comparesNothing() {
		fingerprint := l.fingerprint(s, c.r)
		if len(fingerprint) == 0 && !l.cfg.SkipFingerprint {
			l.refuseKeyed(w, r, c.request.ID.Key, fingerprintMissing)
			return
		}
		c.request.Fingerprint = l.cfg.storedFingerprint(fingerprint, c.r)
	}
	l.runner.serveKeyed(l, c)
}

// fingerprint returns what must be the same in a repeat of a request whose body
// has been read.
func (l *middleware) fingerprint(s *callBuffers, r *http.Request) []byte {
	switch {
	case l.cfg.SkipFingerprint:
		return nil // only the named headers count
	case l.cfg.Fingerprint != nil:
		return l.cfg.Fingerprint(r, s.body)
	}
	return s.fingerprint()
}

// isInside reports whether a layer round this one protects the request already.
func (l *middleware) isInside(r *http.Request, id onlyonce.ID) bool {
	outer := onlyonce.Current(r.Context())
	return outer != nil && outer.Record().ID == id
}

// send writes an answer's body, which ends the request: a client that has its last
// byte may ask again at once, and is not to meet a quota that still counts it.
func (l *middleware) send(c *call, body []byte) {
	if len(body) == 0 {
		return
	}
	if len(body) > freeAnswer {
		if c.x != nil {
			c.x.body.Close()
		}
		l.dropBody(c)
	}
	last := len(body) - 1
	if c.scratch.uses.IsCounted() && last > 0 {
		if _, err := resources.Deliver(&c.scratch.uses.Response, c.w, body[:last]); err != nil {
			return // a client that went away asks again
		}
		body = body[last:]
	}
	l.free(c)
	_, _ = c.w.Write(body)
}

// readBody reads the body, or refuses the request.
func (l *middleware) readBody(c *call) bool {
	s := c.scratch
	var err error
	head := len(s.text)
	s.text, err = l.receive(c, s.text)
	if s.body = s.text[head:]; err == nil {
		return true
	}
	var outer *http.MaxBytesError
	var full *resources.Refusal
	p := bodyUnreadable
	switch {
	case errors.As(err, &full):
		p = *problemOfRefusal(full)
	case err == resources.ErrSilent:
		p = overloaded
	case errors.Is(err, resources.ErrTooLarge), errors.As(err, &outer):
		p = bodyTooLarge
	}
	p.Err = err
	if p.Code != bodyUnreadable.Code {
		s.drop()
		l.free(c)
		l.refuseUnread(c.w, c.r, c.request.ID.Key, p)
		return false
	}
	if c.r.ProtoMajor == 1 {
		c.w.Header().Set("Connection", "close") // nobody knows where the next request begins
	}
	l.refuseKeyed(c.w, c.r, c.request.ID.Key, p)
	return false
}

func (l *middleware) refuseKeyed(w http.ResponseWriter, r *http.Request, key string, p Problem) {
	p.Key = key
	l.refuse(w, r, p)
}

// hashed begins what stands for a part of an ID that is too long.
const hashed = "sha256:"

// shortenPart makes a part of an ID short enough for every store. A part that looks like
// what stands for another is replaced too, so that no two parts become the same.
func shortenPart(part string) string {
	if len(part) <= longestKey && !strings.HasPrefix(part, hashed) {
		return part
	}
	return fmt.Sprintf(hashed+"%x", onlyonce.Fingerprint([]byte(part)))
}

func (l *middleware) operation(r *http.Request) string {
	switch {
	case l.cfg.Operation != nil:
		return l.cfg.Operation(r)
	case r.Pattern == "":
		return r.Method + " " + r.URL.Path
	}
	if rest, ok := strings.CutPrefix(r.Pattern, r.Method); ok && strings.HasPrefix(rest, " ") {
		return r.Pattern
	}
	return r.Method + " " + r.Pattern
}

// wait says how long a request waits for another with its key; 0: as the Guard
// says.
func (l *middleware) wait(r *http.Request) time.Duration { return PreferredWait(r, l.cfg.MaxWait) }
