package proxyfile

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/rejection"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/shares"
)

func (c *checker) routes() {
	mux := http.NewServeMux()
	for i := range c.file.Routes {
		r, at := &c.file.Routes[i], fmt.Sprintf("routes[%d]", i)
		if text := addPattern(mux, r.Match); text != "" {
			c.wrong(at+".match", text)
		}
		if !slices.ContainsFunc(c.file.Upstreams, func(u Upstream) bool { return r.Upstream == "" || r.Upstream == u.Name }) && len(c.file.Upstreams) > 0 {
			c.wrong(at+".upstream", fmt.Sprintf("there is no upstream %q: write the name of one, or add it to upstreams", r.Upstream))
		}
		c.settings(&r.Settings, at)
		c.unasked(r, at)
	}
}

// unasked reports the settings for keys of a route that protects no request.
func (c *checker) unasked(r *Route, at string) {
	method, _ := r.Pattern()
	if method == "" || slices.Contains(r.Methods, method) {
		return
	}
	instead := "match a method that changes something, such as POST"
	if httponce.CanProtect(method) {
		instead = "add " + method + " to methods"
	}
	text := fmt.Sprintf("a %s of this route is not protected, and passes without a key: %s, or leave this out", method, instead)
	if r.Key.Required && c.file.Given(at+".key.required") {
		c.wrong(at+".key.required", text)
	}
	if r.Key.Pointer != "" && c.file.Given(at+".key.pointer") {
		c.wrong(at+".key.pointer", text)
	}
}

// conflicting matches the error of the mux for two patterns that match the same requests.
var conflicting = regexp.MustCompile(`conflicts with pattern "([^"]*)"`)

// addPattern adds a pattern to the mux, or returns the mistake in it.
func addPattern(mux *http.ServeMux, pattern string) (wrong string) {
	method, path, both := strings.Cut(pattern, " ")
	if !both {
		method, path = "", pattern
	}
	switch {
	case pattern == "":
		return "this is missing: write a method and a path, such as POST /orders/{id}"
	case !strings.HasPrefix(path, "/"), method != strings.ToUpper(method), both && method == "":
		return fmt.Sprintf("%q is not a pattern: write a method in capitals, one blank and a path, such as POST /orders/{id}", pattern)
	}
	defer func() {
		if p := recover(); p != nil {
			text := fmt.Sprint(p)
			wrong = fmt.Sprintf("%q is not a pattern: write one such as POST /orders/{id}", pattern)
			if found := conflicting.FindStringSubmatch(text); found != nil {
				wrong = fmt.Sprintf("%q and %q match some of the same requests, and neither is more specific: leave one out, or narrow one", pattern, found[1])
			}
		}
	}()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	return ""
}

// ownMethods sets the methods of each route whose match names a method to that method.
func (f *File) ownMethods() {
	for i := range f.Routes {
		r := &f.Routes[i]
		method, _ := r.Pattern()
		if method != "" && !f.Given(fmt.Sprintf("routes[%d].methods", i)) && httponce.CanProtect(method) {
			r.Methods = []string{method}
		}
	}
}

// These say, in the mistake of a duration, what the valid value 0 means.
const (
	notAtAll = "0s for not at all"
	asKeep   = "0s for as long as keep"
)

// settings checks the settings of a route, or the defaults. A mistake that a route inherits
// is reported once, in the defaults.
func (c *checker) settings(s *Settings, at string) {
	wrong := func(setting, text string, places ...string) {
		if len(places) == 0 {
			places = []string{setting}
		}
		for i, place := range places {
			places[i] = at + "." + place
		}
		if at == "defaults" || slices.ContainsFunc(places, c.file.Given) {
			c.wrong(at+"."+setting, text, places...)
		}
	}
	if at == "defaults" || c.file.Given(at+".methods") {
		checkMethods(s, wrong)
	}
	checkKey(s, wrong)
	checkFingerprint(s, wrong)
	checkSummary(s, wrong)
	checkResponses(s, wrong)
	checkErrors(s, wrong)
	checkHeaders(s, wrong)
	for _, m := range []struct{ setting, text string }{
		{"unknown", UnknownPolicies.Mistake(s.Unknown)},
		{"keep", cli.DurationMistake(s.Keep, "")},
		{"remember", cli.DurationMistake(s.Remember, asKeep)},
		{"lease", cli.DurationMistake(s.Lease, "")},
		{"wait", cli.DurationMistake(s.Wait, notAtAll)},
		{"prefer_wait", cli.DurationMistake(s.PreferWait, notAtAll)},
	} {
		if m.text != "" {
			wrong(m.setting, m.text)
		}
	}
	c.remember(s, at)
	limits := &s.Limits
	if limits.Body < 1 {
		wrong("limits.body", "write at least 1 byte, such as 1MiB")
	}
	if limits.Other < 0 {
		wrong("limits.other", "write a size, or 0 for no limit")
	}
	if limits.Response < 1 || limits.Response > 1<<30 {
		wrong("limits.response", fmt.Sprintf("%v is out of bounds: write 1 to 1GiB; responses.no_body stores none", limits.Response))
	}
	if limits.NewKeys < 1 {
		wrong("limits.new_keys", "write at least 1")
	}
	if limits.InFlight < 1 {
		wrong("limits.in_flight", "write at least 1")
	}
	if limits.TenantStored < 1 {
		wrong("limits.tenant_stored", "write at least 1 byte, such as 16GiB")
	}
	if most := Size(shares.Long(int64(min(limits.TenantMemory, c.file.Server.Memory)))); limits.Body > most {
		wrong("limits.tenant_memory", fmt.Sprintf("a body of limits.body (%v) does not fit: a long body may use three quarters of this and of server.memory, which is %v; raise these, or lower limits.body", limits.Body, most), "limits.tenant_memory", "limits.body")
	}
}

// remember reports a time after which a key would be forgotten before its response.
func (c *checker) remember(s *Settings, at string) {
	switch {
	case !defaults.RememberTooShort(s.Remember, s.Keep), cli.DurationMistake(s.Remember, asKeep) != "", cli.DurationMistake(s.Keep, "") != "":
	case at == "defaults", c.file.Given(at + ".remember"):
		c.wrong(at+".remember", fmt.Sprintf("%v is shorter than keep, which is %v: raise it, or write 0s for as long as keep", s.Remember, s.Keep))
	case c.file.Given(at + ".keep"):
		c.wrong("defaults.remember", fmt.Sprintf("%v is shorter than %s.keep, which is %v: raise it, or write remember: 0s into that route for as long as its keep", s.Remember, at, s.Keep))
	}
}

// A complaint reports a mistake in a setting.
type complaint func(setting, text string, places ...string)

func checkMethods(s *Settings, wrong complaint) {
	if len(s.Methods) == 0 {
		wrong("methods", "the list is empty, so no request would be protected: write ["+strings.Join(httponce.DefaultMethods(), ", ")+"]")
	}
	for i, m := range s.Methods {
		switch {
		case !httpfield.IsToken(m) || m != strings.ToUpper(m):
			wrong("methods", fmt.Sprintf("%q is not a method: write it in capitals, such as POST", m), fmt.Sprintf("methods[%d]", i), "methods")
		case !httponce.CanProtect(m):
			wrong("methods", fmt.Sprintf("%s is safe to repeat by itself: leave it out", m), fmt.Sprintf("methods[%d]", i), "methods")
		}
	}
}

func checkKey(s *Settings, wrong complaint) {
	k := &s.Key
	if !httpfield.IsToken(k.Header) || slices.Contains(notOurs, strings.ToLower(k.Header)) {
		wrong("key.header", fmt.Sprintf("%q can't be the header of a key: write one such as Idempotency-Key", k.Header))
	}
	if text := severalSpellings(k.Header); httpfield.IsToken(k.Header) && text != "" {
		wrong("key.header", text)
	}
	if k.MaxLength < 1 || k.MaxLength > defaults.LongestIDPart {
		wrong("key.max_length", fmt.Sprintf("%d is out of bounds: write 1 to %d", k.MaxLength, defaults.LongestIDPart))
	}
	if strings.ContainsFunc(k.Chars, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		wrong("key.chars", "a key can have printable ASCII characters except space, quote and backslash: leave out all others")
	}
	if k.Pointer != "" && !isPointer(k.Pointer) {
		wrong("key.pointer", fmt.Sprintf("%q is not a JSON Pointer: write one such as /request_id", k.Pointer))
	}
}

// isPointer reports whether text is a JSON Pointer (RFC 6901) into a document.
func isPointer(text string) bool {
	return strings.HasPrefix(text, "/") && !strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(text), "~")
}

func checkFingerprint(s *Settings, wrong complaint) {
	p := &s.Fingerprint
	if text := FingerprintModes.Mistake(p.Mode); text != "" {
		wrong("fingerprint.mode", text)
	} else if p.Mode != FingerprintJSON && len(p.Fields) > 0 {
		wrong("fingerprint.fields", "fields are compared only with mode: json: set that, or leave fields out", "fingerprint.fields", "fingerprint.mode")
	}
	for i, name := range p.Headers {
		at := fmt.Sprintf("fingerprint.headers[%d]", i)
		if !httpfield.IsToken(name) {
			wrong(at, fmt.Sprintf("%q is not a header name: write one such as X-Account", name), at, "fingerprint.headers")
		} else if text := severalSpellings(name); text != "" {
			wrong(at, text, at, "fingerprint.headers")
		}
	}
	for i, field := range p.Fields {
		if at := fmt.Sprintf("fingerprint.fields[%d]", i); !isPointer(field) {
			wrong(at, fmt.Sprintf("%q is not a JSON Pointer: write one such as /amount", field), at, "fingerprint.fields")
		}
	}
}

func checkSummary(s *Settings, wrong complaint) {
	for i, of := range s.Summary {
		at := fmt.Sprintf("summary[%d]", i)
		switch {
		case strings.HasPrefix(of, "/") && !isPointer(of):
			wrong(at, fmt.Sprintf("%q is not a JSON Pointer: write one such as /amount", of), at, "summary")
		case !strings.HasPrefix(of, "/") && !httpfield.IsToken(of):
			wrong(at, fmt.Sprintf("%q is neither a JSON Pointer nor a header name: write path, /amount or X-Order-ID, for example", of), at, "summary")
		}
	}
}

func checkResponses(s *Settings, wrong complaint) {
	a := &s.Responses
	for i, stored := range a.Statuses {
		if at := fmt.Sprintf("responses.statuses[%d]", i); stored.To >= 500 {
			wrong(at, "responses of 500 or more are stored with keep_errors: true: leave them out here", at, "responses.statuses")
		}
	}
	for i, unknown := range a.UnknownStatuses {
		if at := fmt.Sprintf("responses.unknown_statuses[%d]", i); unknown.From < 500 {
			wrong(at, "a server responds with a status below 500 itself, so the outcome is known: write statuses such as 502, or 5xx", at, "responses.unknown_statuses")
		}
	}
	if len(a.KeepHeaders) > 0 && len(a.DropHeaders) > 0 {
		wrong("responses.drop_headers", "keep_headers lists the only headers that are stored: leave out one of the two", "responses.drop_headers", "responses.keep_headers")
	}
	if len(a.KeepHeaders) > 0 && len(a.AllowHeaders) > 0 {
		wrong("responses.allow_headers", "keep_headers lists the only headers that are stored: leave out one of the two", "responses.allow_headers", "responses.keep_headers")
	}
	for _, list := range []struct {
		setting string
		names   []string
	}{{"keep_headers", a.KeepHeaders}, {"allow_headers", a.AllowHeaders}, {"drop_headers", a.DropHeaders}} {
		for _, name := range list.names {
			if !httpfield.IsToken(name) {
				wrong("responses."+list.setting, fmt.Sprintf("%q is not a header name: write one such as ETag", name))
			}
		}
	}
}

func checkErrors(s *Settings, wrong complaint) {
	e := &s.Errors
	switch text := errorFormats.Mistake(e.Format); {
	case text != "":
		wrong("errors.format", text)
	case e.Format != formatTemplate && e.Template != "":
		wrong("errors.template", "a template has an effect only with format: template: set that, or leave the template out", "errors.template", "errors.format")
	case e.Format == formatTemplate && e.Template == "":
		wrong("errors.template", `the template is missing: write one such as '{"code":{{.Code}},"message":{{.Detail}}}'`, "errors.template", "errors.format")
	}
	var err error
	if e.write, err = writer(e); err != nil {
		wrong("errors.template", err.Error())
	}
	if strings.ContainsFunc(e.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) || !strings.Contains(e.ContentType, "/") {
		wrong("errors.content_type", fmt.Sprintf("%q is not a media type: write one such as application/json", e.ContentType))
	}
	if strings.ContainsFunc(e.DocsURL, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }) || e.DocsURL != "" && !IsURL(e.DocsURL) {
		wrong("errors.docs_url", fmt.Sprintf("%q is not a URL: write one such as https://api.example.com/docs/idempotency", e.DocsURL))
	}
}

// writer returns the writer of rejections for the format.
func writer(e *Errors) (rejection.Writer, error) {
	switch {
	case e.Format == formatStripe:
		return rejection.Stripe, nil
	case e.Format == formatTemplate && e.Template != "":
		return rejection.Template(e.Template, e.ContentType)
	}
	return func(w http.ResponseWriter, r *http.Request, p httponce.Problem) { p.ServeHTTP(w, r) }, nil
}
