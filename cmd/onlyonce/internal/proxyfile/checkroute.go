package proxyfile

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/refusal"
)

func (c *checker) routes() {
	mux := http.NewServeMux()
	for i := range c.file.Routes {
		r, at := &c.file.Routes[i], fmt.Sprintf("routes[%d]", i)
		if text := addPattern(mux, r.Match); text != "" {
			c.wrong(at+".match", text, &r.Match, r)
		}
		if !slices.ContainsFunc(c.file.Upstreams, func(u Upstream) bool { return r.Upstream == "" || r.Upstream == u.Name }) && len(c.file.Upstreams) > 0 {
			c.wrong(at+".upstream", fmt.Sprintf("there is no upstream %q: write the name of one, or add it to upstreams", r.Upstream), &r.Upstream, r)
		}
		c.settings(&r.Settings, at)
		c.unasked(r, at)
	}
}

// unasked finds what a route asks of keys although no request of it is protected.
func (c *checker) unasked(r *Route, at string) {
	method, _, both := strings.Cut(r.Match, " ")
	if !both || slices.Contains(r.Methods, method) {
		return
	}
	instead := "match a method that changes something, such as POST"
	if !slices.Contains(neverProtected, method) {
		instead = "add " + method + " to methods"
	}
	text := fmt.Sprintf("a %s of this route is not protected, and passes without a key: %s, or leave this out", method, instead)
	if r.Key.Required && c.file.Given(&r.Key.Required) {
		c.wrong(at+".key.required", text, &r.Key.Required)
	}
	if r.Key.Pointer != "" && c.file.Given(&r.Key.Pointer) {
		c.wrong(at+".key.pointer", text, &r.Key.Pointer)
	}
}

// conflicting is how the mux names two patterns that match the same.
var conflicting = regexp.MustCompile(`conflicts with pattern "([^"]*)"`)

// addPattern adds a pattern, or returns what is wrong with it.
func addPattern(mux *http.ServeMux, pattern string) (wrong string) {
	method, path, both := strings.Cut(pattern, " ")
	if !both {
		method, path = "", pattern
	}
	switch {
	case pattern == "":
		return "this is missing: write a method and a path, such as POST /orders/{id}"
	case !strings.HasPrefix(path, "/"), method != strings.ToUpper(method), both && method == "":
		return fmt.Sprintf("%q is no pattern: write a method in capitals, one blank and a path, such as POST /orders/{id}", pattern)
	}
	defer func() {
		if p := recover(); p != nil {
			text := fmt.Sprint(p)
			wrong = fmt.Sprintf("%q is no pattern: write one such as POST /orders/{id}", pattern)
			if found := conflicting.FindStringSubmatch(text); found != nil {
				wrong = fmt.Sprintf("%q and %q match some of the same requests, and neither is more specific: leave one out, or narrow one", pattern, found[1])
			}
		}
	}()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	return ""
}

// neverProtected are the methods that repeat safely by themselves.
var neverProtected = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}

// ownMethods gives a route whose match names a method that one.
func (f *File) ownMethods() {
	for i := range f.Routes {
		r := &f.Routes[i]
		method, _, both := strings.Cut(r.Match, " ")
		if both && !f.Given(&r.Methods) && !slices.Contains(neverProtected, method) {
			r.Methods = []string{method}
		}
	}
}

// settings checks those of a route, or the defaults. What a route only inherits
// is wrong in the defaults.
func (c *checker) settings(s *Settings, at string) {
	wrong := func(setting, text string, fields ...any) {
		if at == "defaults" || slices.ContainsFunc(fields, c.file.Given) {
			c.wrong(at+"."+setting, text, fields...)
		}
	}
	if at == "defaults" || c.file.Given(&s.Methods) {
		checkMethods(s, wrong)
	}
	checkKey(s, wrong)
	checkFingerprint(s, wrong)
	checkAnswers(s, wrong)
	checkErrors(s, wrong)
	checkHeaders(s, wrong)
	if s.Unknown != "rerun" && s.Unknown != "hold" {
		wrong("unknown", fmt.Sprintf("%q is not known: write rerun or hold", s.Unknown), &s.Unknown)
	}
	limits := &s.Limits
	if limits.Body < 1 {
		wrong("limits.body", "write at least 1 byte, such as 1MiB", &limits.Body)
	}
	if limits.Other < 0 {
		wrong("limits.other", "write a size, or 0 for any", &limits.Other)
	}
	if limits.Answer < 1 || limits.Answer > 1<<30 {
		wrong("limits.answer", fmt.Sprintf("%v is out of bounds: write 1 to 1GiB; answers.no_body stores none", limits.Answer), &limits.Answer)
	}
	if limits.NewKeys < 1 {
		wrong("limits.new_keys", "write at least 1", &limits.NewKeys)
	}
	if limits.InFlight < 1 {
		wrong("limits.in_flight", "write at least 1", &limits.InFlight)
	}
	if limits.TenantStored < 1 {
		wrong("limits.tenant_stored", "write at least 1 byte, such as 16GiB", &limits.TenantStored)
	}
	if room := min(limits.TenantMemory, c.file.Server.Memory); limits.Body > room-room/4 {
		wrong("limits.tenant_memory", fmt.Sprintf("a body of limits.body, %v, does not fit: long ones may take three quarters of this and of server.memory, %v: raise these, or lower limits.body", limits.Body, room-room/4), &limits.TenantMemory, &limits.Body)
	}
	if at == "defaults" || c.file.Given(&s.Keep) {
		c.duration(&s.Keep, at+".keep", false)
	}
	if at == "defaults" || c.file.Given(&s.Lease) {
		c.duration(&s.Lease, at+".lease", false)
	}
	if at == "defaults" || c.file.Given(&s.Wait) {
		c.duration(&s.Wait, at+".wait", true)
	}
	if at == "defaults" || c.file.Given(&s.PreferWait) {
		c.duration(&s.PreferWait, at+".prefer_wait", true)
	}
}

// A complaint says that a setting is wrong.
type complaint func(setting, text string, fields ...any)

func checkMethods(s *Settings, wrong complaint) {
	if len(s.Methods) == 0 {
		wrong("methods", "this is empty, and no request would be protected: write [POST, PATCH]", &s.Methods)
	}
	for i, m := range s.Methods {
		switch {
		case !headerToken.MatchString(m) || m != strings.ToUpper(m):
			wrong("methods", fmt.Sprintf("%q is no method: write capitals, such as POST", m), &s.Methods[i], &s.Methods)
		case slices.Contains(neverProtected, m):
			wrong("methods", fmt.Sprintf("%s repeats safely by itself: leave it out", m), &s.Methods[i], &s.Methods)
		}
	}
}

func checkKey(s *Settings, wrong complaint) {
	k := &s.Key
	if !headerToken.MatchString(k.Header) || slices.Contains(notOurs, strings.ToLower(k.Header)) {
		wrong("key.header", fmt.Sprintf("%q can't be the header of a key: write one such as Idempotency-Key", k.Header), &k.Header)
	}
	if text := severalSpellings(k.Header); headerToken.MatchString(k.Header) && text != "" {
		wrong("key.header", text, &k.Header)
	}
	if k.MaxLength < 1 || k.MaxLength > 1024 {
		wrong("key.max_length", fmt.Sprintf("%d is out of bounds: write 1 to 1024", k.MaxLength), &k.MaxLength)
	}
	if strings.ContainsFunc(k.Chars, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		wrong("key.chars", "a key has printable ASCII characters, and no blank, quote or backslash: leave others out", &k.Chars)
	}
	if k.Pointer != "" && !isPointer(k.Pointer) {
		wrong("key.pointer", fmt.Sprintf("%q is no JSON Pointer: write one such as /request_id", k.Pointer), &k.Pointer)
	}
}

// isPointer reports whether text is a JSON Pointer (RFC 6901) into a document.
func isPointer(text string) bool {
	return strings.HasPrefix(text, "/") && !strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(text), "~")
}

func checkFingerprint(s *Settings, wrong complaint) {
	p := &s.Fingerprint
	switch p.Mode {
	case "json":
	case "raw", "none":
		if len(p.Fields) > 0 {
			wrong("fingerprint.fields", "fields are compared only with mode: json: write that, or leave fields out", &p.Fields, &p.Mode)
		}
	default:
		wrong("fingerprint.mode", fmt.Sprintf("%q is not known: write raw, json or none", p.Mode), &p.Mode)
	}
	for i, name := range p.Headers {
		if !headerToken.MatchString(name) {
			wrong(fmt.Sprintf("fingerprint.headers[%d]", i), fmt.Sprintf("%q is no name of a header: write one such as X-Account", name), &p.Headers[i], &p.Headers)
		} else if text := severalSpellings(name); text != "" {
			wrong(fmt.Sprintf("fingerprint.headers[%d]", i), text, &p.Headers[i], &p.Headers)
		}
	}
	for i, field := range p.Fields {
		if !isPointer(field) {
			wrong(fmt.Sprintf("fingerprint.fields[%d]", i), fmt.Sprintf("%q is no JSON Pointer: write one such as /amount", field), &p.Fields[i], &p.Fields)
		}
	}
}

func checkAnswers(s *Settings, wrong complaint) {
	a := &s.Answers
	for i, text := range a.Statuses {
		if _, _, err := ParseStatuses(text); err != nil {
			wrong(fmt.Sprintf("answers.statuses[%d]", i), err.Error(), &a.Statuses[i], &a.Statuses)
		}
	}
	if len(a.KeepHeaders) > 0 && len(a.DropHeaders) > 0 {
		wrong("answers.drop_headers", "keep_headers says which are stored, and no others: leave one of the two out", &a.DropHeaders, &a.KeepHeaders)
	}
	if len(a.KeepHeaders) > 0 && len(a.AllowHeaders) > 0 {
		wrong("answers.allow_headers", "keep_headers says which are stored, and no others: leave one of the two out", &a.AllowHeaders, &a.KeepHeaders)
	}
	for _, list := range []struct {
		setting string
		names   *[]string
	}{{"keep_headers", &a.KeepHeaders}, {"allow_headers", &a.AllowHeaders}, {"drop_headers", &a.DropHeaders}} {
		for _, name := range *list.names {
			if !headerToken.MatchString(name) {
				wrong("answers."+list.setting, fmt.Sprintf("%q is no name of a header: write one such as ETag", name), list.names)
			}
		}
	}
}

// ParseStatuses reads one status, or a class such as 2xx, below 500.
func ParseStatuses(text string) (from, to int, err error) {
	if class, ok := strings.CutSuffix(text, "xx"); ok {
		from, err = strconv.Atoi(class)
		from, to = from*100, from*100+99
	} else {
		from, err = strconv.Atoi(text)
		to = from
	}
	switch {
	case err != nil || from < 200 || to > 599:
		return 0, 0, fmt.Errorf("%q is no status: write one such as 201, or a class such as 2xx", text)
	case to >= 500:
		return 0, 0, errors.New("answers of 500 or more are stored with keep_errors: true: leave them out here")
	}
	return from, to, nil
}

func checkErrors(s *Settings, wrong complaint) {
	e := &s.Errors
	switch e.Format {
	case "problem", "stripe":
		if e.Template != "" {
			wrong("errors.template", "this counts only with format: template: write that, or leave it out", &e.Template, &e.Format)
		}
	case "template":
		if e.Template == "" {
			wrong("errors.template", `this is missing: write one such as '{"code":{{.Code}},"message":{{.Detail}}}'`, &e.Template, &e.Format)
		} else if _, err := refusal.Template(e.Template, e.ContentType); err != nil {
			wrong("errors.template", err.Error(), &e.Template)
		}
	default:
		wrong("errors.format", fmt.Sprintf("%q is not known: write problem, stripe or template", e.Format), &e.Format)
	}
	if strings.ContainsFunc(e.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) || !strings.Contains(e.ContentType, "/") {
		wrong("errors.content_type", fmt.Sprintf("%q is no media type: write one such as application/json", e.ContentType), &e.ContentType)
	}
	if strings.ContainsFunc(e.DocsURL, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' }) || e.DocsURL != "" && !IsURL(e.DocsURL) {
		wrong("errors.docs_url", fmt.Sprintf("%q is no URL: write one such as https://api.example.com/docs/idempotency", e.DocsURL), &e.DocsURL)
	}
}
