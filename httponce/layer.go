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
)

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
	x       *exchange         // the one that ran the handler
	attempt *onlyonce.Attempt // that ran; nil: none
	allowed *allowance        // by the quota, until it ends; nil: none
}

// again returns the request, whose body has been read, with a body.
func (c *call) again(ctx context.Context, b *body) *http.Request {
	r := c.r.WithContext(ctx)
	if r.Body != http.NoBody {
		r.Body = b
	}
	return r
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
	tenant := fit(l.cfg.Tenant(r))
	if tenant == "" {
		l.refuseKeyed(w, r, key, tenantMissing)
		return
	}
	id := onlyonce.ID{Tenant: tenant, Operation: fit(l.operation(r)), Key: key}
	if outer := onlyonce.Current(r.Context()); outer != nil && outer.Record().ID == id {
		l.way.open(l, w, r) // a layer round this one protects it already
		return
	}
	s := takeScratch()
	defer s.giveBack()
	if l.cfg.Fingerprint == nil {
		s.begin(r, "bytes")
	}
	if !l.readBody(s, w, r, key) {
		return
	}
	c := &s.call
	*c = call{w: w, r: r, scratch: s, request: onlyonce.Request{
		ID:   id,
		Wait: l.wait(r),
	}}
	if l.cfg.Fingerprint != nil {
		c.request.Fingerprint = l.cfg.Fingerprint(r, s.body)
	} else {
		c.request.Fingerprint = s.fingerprint()
	}
	c.request.Fingerprint = l.cfg.keyed(c.request.Fingerprint)
	if l.quota != nil {
		allowed, wait := l.quota.enter(tenant)
		if allowed == nil {
			p := tooMany
			p.RetryAfter = wait
			l.refuseKeyed(w, r, key, p)
			return
		}
		c.allowed = allowed
		defer l.free(c)
	}
	l.way.keyed(l, c)
}

// free ends the request for its tenant's quota.
func (l *layer) free(c *call) {
	if a := c.allowed; a != nil {
		c.allowed = nil
		l.quota.leave(c.request.ID.Tenant, a, c.attempt != nil && c.attempt.Number() == 1)
	}
}

// send writes an answer's body, which ends the request: a client that has its last
// byte may ask again at once, and is not to meet a quota that still counts it.
func (l *layer) send(c *call, body []byte) {
	if len(body) == 0 {
		return
	}
	last := len(body) - 1
	if c.allowed != nil && last > 0 {
		_, _ = c.w.Write(body[:last])
		body = body[last:]
	}
	l.free(c)
	_, _ = c.w.Write(body) // a client that went away asks again
}

// readBody reads the body, or refuses the request.
func (l *layer) readBody(s *scratch, w http.ResponseWriter, r *http.Request, key string) bool {
	var err error
	head := len(s.text)
	s.text, err = readBody(s.text, r, l.cfg.MaxBody)
	if s.body = s.text[head:]; err == nil {
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
	}
	if rest, ok := strings.CutPrefix(r.Pattern, r.Method); ok && strings.HasPrefix(rest, " ") {
		return r.Pattern
	}
	return r.Method + " " + r.Pattern
}

// wait says how long a request waits for another with its key; 0: as the Guard
// says.
func (l *layer) wait(r *http.Request) time.Duration { return PreferredWait(r, l.cfg.MaxWait) }
