package httponce

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A middleware protects a handler.
type middleware struct {
	*protection
	runner runner
	mux    *http.ServeMux // the handler; nil: it is another one
}

// A runner runs a middleware's handler.
type runner interface {
	// serveUnkeyed serves a request that is not protected.
	serveUnkeyed(pt *protection, w http.ResponseWriter, r *http.Request)
	// serveNested serves one that a middleware around this one protects.
	serveNested(w http.ResponseWriter, r *http.Request)
	// serveKeyed serves one that this middleware protects.
	serveKeyed(c *call)
}

// redirectHandler is the type of the handlers by which a ServeMux redirects.
var redirectHandler = reflect.TypeOf(http.RedirectHandler("", 0))

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(m.cfg.Methods, r.Method) {
		m.runner.serveUnkeyed(m.protection, w, r)
		return
	}
	if m.mux != nil {
		h, pattern := m.mux.Handler(r)
		isNamed := m.cfg.Operation != nil
		if pattern == "" && !isNamed || reflect.TypeOf(h) == redirectHandler {
			// The mux itself responds: there is no such path or method, or the client is to
			// send the request, with its key, to another path.
			m.runner.serveUnkeyed(m.protection, w, r)
			return
		}
		if !isNamed {
			r.Pattern = pattern
		}
	}
	values, present := r.Header[m.cfg.Header]
	inBody := m.cfg.KeyInBody != nil && r.ContentLength != 0
	if !present && !inBody {
		if m.cfg.Required {
			m.rejectUnread(w, r, keyMissing)
			return
		}
		m.runner.serveUnkeyed(m.protection, w, r)
		return
	}
	key := ""
	if present {
		var wrong string
		if key, wrong = m.keys.Read(values); wrong != "" {
			m.rejectUnread(w, r, invalidKey(wrong))
			return
		}
	}
	m.protect(w, r, key, inBody)
}

// protect serves a request that has a valid key, or whose body may have one.
// Its usage is counted before its body is read.
func (m *middleware) protect(w http.ResponseWriter, r *http.Request, key string, inBody bool) {
	tenant := shortenPart(m.cfg.Tenant(r))
	if tenant == "" {
		p := tenantMissing
		p.Key = key
		m.rejectUnread(w, r, p)
		return
	}
	id := onlyonce.ID{Tenant: tenant, Operation: shortenPart(m.operation(r)), Key: key}
	if isProtected(r, id) {
		m.runner.serveNested(w, r)
		return
	}
	c := newCall(m.protection, w, r)
	defer c.recycle()
	c.request = onlyonce.Request{ID: id, SkipFingerprint: m.cfg.comparesNothing(), Wait: PreferredWait(r, m.cfg.MaxWait)}
	if p := c.admit(); p != nil {
		c.rejectUnread(*p)
		return
	}
	defer c.release()
	if m.cfg.Fingerprint == nil && !m.cfg.SkipFingerprint {
		c.begin(r, "bytes")
	}
	if !c.readBody() {
		return
	}
	if inBody || !m.cfg.SkipFingerprint {
		c.checkNotRead()
	}
	if inBody {
		if p := c.keyInBody(); p != nil {
			c.reject(*p)
			return
		}
		isNested := isProtected(r, c.request.ID)
		if c.request.ID.Key == "" || isNested {
			b := new(body)
			defer b.Close()
			again := c.requestWithBody(r.Context(), b)
			again.ContentLength = int64(len(c.body))
			if isNested {
				m.runner.serveNested(w, again)
			} else {
				m.runner.serveUnkeyed(m.protection, w, again)
			}
			return
		}
	}
	if !m.cfg.comparesNothing() {
		fingerprint := c.ownFingerprint()
		if len(fingerprint) == 0 && !m.cfg.SkipFingerprint {
			c.reject(fingerprintMissing)
			return
		}
		c.request.Fingerprint = m.cfg.storedFingerprint(fingerprint, c.r)
	}
	if m.summary != nil {
		c.request.Summary = m.summary.of(c.r, c.body)
	}
	if p := c.expectReplay(); p != nil {
		c.reject(*p)
		return
	}
	m.runner.serveKeyed(c)
}

// isProtected reports whether a middleware around this one already protects the
// request.
func isProtected(r *http.Request, id onlyonce.ID) bool {
	outer := onlyonce.Current(r.Context())
	return outer != nil && outer.Record().ID == id
}

// hashed is the prefix of the hash that replaces a part of an ID that is too long.
const hashed = "sha256:"

// shortenPart makes a part of an ID short enough for every store. A part that
// looks like such a hash is replaced too, so that no two parts become the same.
func shortenPart(part string) string {
	if len(part) <= defaults.LongestIDPart && !strings.HasPrefix(part, hashed) {
		return part
	}
	return fmt.Sprintf(hashed+"%x", onlyonce.Fingerprint([]byte(part)))
}

// operation returns the name of the operation that is requested.
func (pt *protection) operation(r *http.Request) string {
	switch {
	case pt.cfg.Operation != nil:
		return pt.cfg.Operation(r)
	case r.Pattern == "":
		return r.Method + " " + r.URL.Path
	}
	if rest, ok := strings.CutPrefix(r.Pattern, r.Method); ok && strings.HasPrefix(rest, " ") {
		return r.Pattern
	}
	return r.Method + " " + r.Pattern
}
