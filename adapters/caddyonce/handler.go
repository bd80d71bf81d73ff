package caddyonce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler runs the handlers after it once for each idempotency key; a repeat gets the first
// response. A setting that is left out has its default. Exactly one of Tenant and SingleTenant is
// required, and so is the URL of the store.
type Handler struct {
	Stored

	// The tenant of a request, with placeholders whose values were verified before this handler,
	// such as {http.auth.user.id}. Two tenants may use the same key and never see each
	// other's responses. If one of the placeholders is empty, a request with a key is rejected
	// with 401, and so it is if Tenant has a header of the request and the value has a comma,
	// because a client may have added a second one. In a tenant of several placeholders, the length
	// of each value precedes it, as in 3:ada/4:shop, so that different values are different tenants.
	Tenant       string `json:"tenant,omitempty"`
	SingleTenant bool   `json:"single_tenant,omitempty"` // all callers are one tenant, and may see each other's responses

	// The name of the operation, which may have placeholders. A command is found by its tenant, its
	// operation and its key. Default: the method and the path as the client sent it; in a
	// Caddyfile, the method and the directive's matcher, if it has one.
	Operation string `json:"operation,omitempty"`

	Methods  []string `json:"methods,omitempty"`  // default: POST and PATCH
	Header   string   `json:"header,omitempty"`   // of the key; default: Idempotency-Key
	Required bool     `json:"required,omitempty"` // reject a request without a key

	// What happens to a repeat of a command whose outcome is unknown: "rerun", the default, or
	// "hold", which rejects it until a person has decided.
	Unknown string `json:"unknown,omitempty"`
	// The statuses after which the outcome is unknown, each from 500 to 599, ranges such as
	// "520-529", or "5xx". Default: 502, 504, 520-529.
	UnknownStatuses []string `json:"unknown_statuses,omitempty"`
	KeepErrors      bool     `json:"keep_errors,omitempty"` // replay a response of 500 or more instead of running again

	Lease      caddy.Duration `json:"lease,omitempty"`       // how long an attempt holds its command without renewal; default 30s
	Keep       caddy.Duration `json:"keep,omitempty"`        // how long a response is replayed; default 24h
	Remember   caddy.Duration `json:"remember,omitempty"`    // how long a key is remembered: a repeat that comes later than keep gets 410; default: as keep
	Wait       caddy.Duration `json:"wait,omitempty"`        // how long a repeat waits for a running attempt; default: it is rejected at once
	PreferWait caddy.Duration `json:"prefer_wait,omitempty"` // the longest wait that a client's "Prefer: wait=N" can request; default: none

	// How a repeat is compared with the first request, besides its host: "bytes", the default, "json"
	// or "none".
	Fingerprint        string   `json:"fingerprint,omitempty"`
	FingerprintFields  []string `json:"fingerprint_fields,omitempty"`  // JSON Pointers to the parts of a body that are compared; default: all of it
	FingerprintHeaders []string `json:"fingerprint_headers,omitempty"` // headers that must also be the same
	Summary            []string `json:"summary,omitempty"`             // "path", headers and JSON Pointers that a record shows to operators; default: none

	MaxBody     int64 `json:"max_body,omitempty"`      // of a request with a key, in bytes; default 1 MiB; a larger one is rejected with 413
	MaxResponse int64 `json:"max_response,omitempty"`  // the longest body of a response that is stored, in bytes; default 1 MiB
	MaxInFlight int   `json:"max_in_flight,omitempty"` // concurrent requests of one tenant; default 4096
	MaxNewKeys  int   `json:"max_new_keys,omitempty"`  // new keys of one tenant per minute; default 600,000

	DocsURL string `json:"docs_url,omitempty"` // the page that documents rejections

	store    *pooled
	key      string // of the store in the pool; empty: it is not in use
	once     http.Handler
	statuses statuses.Set
}

// CaddyModule returns the module's name.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.onlyonce", New: func() caddy.Module { return new(Handler) }}
}

// Provision opens the store, unless a handler with the same settings has opened it, and rejects
// settings that are not valid.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := h.Validate(); err != nil {
		return err
	}
	if err := h.open(ctx); err != nil {
		return err
	}
	api, observe, err := observer(ctx, h.store)
	if err != nil {
		return err
	}
	guard, err := h.wrap(observe)
	if err == nil {
		api.Watch(guard)
	}
	return err
}

// wrap makes the handler that keeps the rules.
func (h *Handler) wrap(observe onlyonce.Observer) (guard *onlyonce.Guard, err error) {
	defer func() {
		p := recover()
		if _, bug := p.(runtime.Error); bug {
			panic(p)
		}
		if p != nil { // how the constructors reject a setting
			err = fmt.Errorf("%v", p)
		}
	}()
	guard = onlyonce.New(h.store.records, onlyonce.Config{
		Lease: time.Duration(h.Lease), Keep: time.Duration(h.Keep), Remember: time.Duration(h.Remember), Wait: time.Duration(h.Wait), HoldUnknown: h.Unknown == hold, Observer: observe,
	})
	h.once = httponce.Wrap(guard, http.HandlerFunc(h.run), h.config())
	return guard, nil
}

func (h *Handler) config() httponce.Config {
	cfg := httponce.Config{
		Tenant: h.tenant, Operation: h.operation, Methods: h.Methods, Header: h.Header, Required: h.Required,
		FingerprintHeaders: append(slices.Clone(h.FingerprintHeaders), "Host"), // it selects the site
		FingerprintSecret:  h.store.secret,
		MaxBody:            h.MaxBody, MaxResponse: int(h.MaxResponse), MaxInFlight: h.MaxInFlight, MaxNewKeys: h.MaxNewKeys,
		MaxWait: time.Duration(h.PreferWait), KeepErrors: h.KeepErrors, UnknownStatus: h.statuses.Unknown, StatusOf: statusOf, Usage: &h.store.usage, DocsURL: h.DocsURL,
	}
	if len(h.Summary) > 0 { // the path is always in it
		cfg.Summary = slices.DeleteFunc(slices.Clone(h.Summary), func(of string) bool { return of == "path" })
	}
	switch h.Fingerprint {
	case "json":
		cfg.Fingerprint = httponce.CanonicalJSON(h.FingerprintFields...)
	case "none":
		cfg.SkipFingerprint = true
	}
	return cfg
}

// statusOf is the default of httponce, except that a timeout that a gRPC-Web call reports does not count
// as a failure, after which a repeat would run: the command may have taken effect.
func statusOf(response onlyonce.Result) int {
	if status := httponce.RPCStatus(response); status != http.StatusGatewayTimeout {
		return status
	}
	return response.Status
}

func replacer(r *http.Request) *caddy.Replacer {
	return r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
}

var errNoTenant = errors.New("a placeholder of the tenant is empty")

func (h *Handler) tenant(r *http.Request) string {
	if h.SingleTenant {
		return httponce.SingleTenant(r)
	}
	several := strings.Count(h.Tenant, "{") > 1
	tenant, err := replacer(r).ReplaceFunc(h.Tenant, func(_ string, value any) (any, error) {
		text := caddy.ToString(value)
		switch {
		case text == "":
			return nil, errNoTenant
		case several: // otherwise, two lists of values could be one text
			text = strconv.Itoa(len(text)) + ":" + text
		}
		return text, nil
	})
	if err != nil || strings.Contains(h.Tenant, "{http.request.header.") && strings.Contains(tenant, ",") {
		return ""
	}
	return tenant
}

func (h *Handler) operation(r *http.Request) string {
	if h.Operation != "" {
		return replacer(r).ReplaceAll(h.Operation, "")
	}
	return r.Method + " " + path.Clean("/"+r.URL.Path)
}

// Cleanup gives the store back.
func (h *Handler) Cleanup() error {
	if h.key == "" { // nothing was opened
		return nil
	}
	key := h.key
	h.key = ""
	_, err := stores.Delete(key)
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	r.Header.Del(httpfield.Attempt)
	r.Header.Del(httpfield.Fence)
	if r.ProtoMajor >= 2 && httpfield.IsGRPC(r.Header.Get("Content-Type")) && !h.Required { // the key in its metadata is the upstream's concern
		return next.ServeHTTP(w, r)
	}
	p := &entry{Context: r.Context(), next: next, store: h.store, rewritten: r.URL, uri: r.RequestURI, out: outer{ResponseWriter: w}}
	p.store.enter()
	defer p.leave()
	sent := r.WithContext(p)
	if original, ok := p.Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok { // the path identifies the operation, whatever it was rewritten to
		sent.URL, sent.RequestURI = original.URL, original.RequestURI
	}
	h.once.ServeHTTP(&p.out, sent)
	p.out.restore()
	return p.err
}

// An entry is the passage of a request through the handler, and the context of that request.
type entry struct {
	context.Context
	next      caddyhttp.Handler
	store     *pooled  // nil: it is not used any more
	rewritten *url.URL // of the request, for the handlers after this one
	uri       string
	out       outer
	in        inner
	sent      sendTrace
	err       error // of the handlers after this one
}

type entryKey struct{}

func (p *entry) Value(key any) any {
	if key == (entryKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// leave ends the use of the store.
func (p *entry) leave() {
	if p.store != nil {
		p.store.leave()
		p.store = nil
	}
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
