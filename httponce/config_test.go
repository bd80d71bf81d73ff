package httponce_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestConfig_AConfigThatMakesNoSenseIsRejected(t *testing.T) {
	g := newGuard(onlyonce.Config{})
	tenant := httponce.SingleTenant
	for wants, cfg := range map[string]httponce.Config{
		"SingleTenant":          {},
		"422 or 409":            {Tenant: tenant, MismatchStatus: 400},
		"leave out one":         {Tenant: tenant, SkipFingerprint: true, Fingerprint: httponce.CanonicalJSON()},
		"1 to 1024":             {Tenant: tenant, KeyFormat: httponce.KeyFormat{MaxLength: 1025}},
		"negative":              {Tenant: tenant, MaxBody: -1},
		"GET":                   {Tenant: tenant, Methods: []string{"POST", "GET"}},
		`"post"`:                {Tenant: tenant, Methods: []string{"post"}},
		`"PUT "`:                {Tenant: tenant, Methods: []string{"PUT "}},
		`"X-Key "`:              {Tenant: tenant, Header: "X-Key "},
		`"X Account"`:           {Tenant: tenant, FingerprintHeaders: []string{"X-Shop", "X Account"}},
		`"X-Order-ID:"`:         {Tenant: tenant, Summary: []string{"X-Order-ID:"}},
		"printable":             {Tenant: tenant, KeyFormat: httponce.KeyFormat{Chars: "abcä"}},
		"StringOnly or":         {Tenant: tenant, KeyFormat: httponce.KeyFormat{Syntax: 3}},
		"a bare key can't have": {Tenant: tenant, KeyFormat: httponce.KeyFormat{Syntax: httponce.TokenOnly, Chars: "ab;"}},
		"16 random":             {Tenant: tenant, FingerprintSecret: []byte("short")},
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "httponce: Wrap: ") || !strings.Contains(text, wants) {
					t.Errorf("%+v: panic %q, want one that says %q", cfg, text, wants)
				}
			}()
			httponce.Wrap(g, http.NotFoundHandler(), cfg)
		}()
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("WrapTx takes RunUnprotected")
			}
		}()
		wrapOrder(newShop(), httponce.Config{Tenant: tenant, RunUnprotected: true}, nil)
	}()
}

func TestConfig_AnEmptyListOfMethodsIsTheDefault(t *testing.T) {
	var runs atomic.Int32
	cfg := single
	cfg.Methods = []string{}
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	for range 2 {
		wantResponse(t, post(h, "k", "x"), 201, "run 1 of x")
	}
}

// A program may clear its copy of a secret after it has built its handlers.
func TestConfig_WhatAProgramDoesToItsSlicesLaterChangesNothing(t *testing.T) {
	var runs atomic.Int32
	g := newGuard(onlyonce.Config{})
	newHandler := func() (http.Handler, httponce.Config) {
		cfg := httponce.Config{
			Tenant: httponce.SingleTenant, Methods: []string{"PUT"},
			FingerprintSecret: []byte("0123456789abcdef"), FingerprintHeaders: []string{"X-Shop"},
		}
		return httponce.Wrap(g, counter(&runs), cfg), cfg
	}
	h, _ := newHandler()
	changed, cfg := newHandler()
	clear(cfg.Methods)
	clear(cfg.FingerprintSecret)
	clear(cfg.FingerprintHeaders)
	wantResponse(t, serve(h, keyed("PUT", "/orders", "k", "x")), 201, "run 1 of x")
	wantResponse(t, serve(changed, keyed("PUT", "/orders", "k", "x")), 201, "run 1 of x")
}

func TestConfig_RequestsThatAreNotProtectedPassUntouched(t *testing.T) {
	var got http.ResponseWriter
	var gotR *http.Request
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, gotR = w, r
	}), single)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"} {
		w, r := httptest.NewRecorder(), keyed(method, "/orders", "not a valid key,", "x")
		if h.ServeHTTP(w, r); got != http.ResponseWriter(w) || gotR != r {
			t.Errorf("%s with a key does not pass untouched", method)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/orders", nil)
	if h.ServeHTTP(w, r); got != http.ResponseWriter(w) || gotR != r {
		t.Error("POST without a key does not pass untouched")
	}
	if allocs := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); allocs != 0 {
		t.Errorf("a request without a key costs %v allocations", allocs)
	}
}

func TestConfig_OtherMethodsHeadersAndKeysCanBeSet(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), httponce.Config{
		Tenant: httponce.SingleTenant, Methods: []string{"PUT"}, Header: "x-request-key", Required: true,
		KeyFormat: httponce.KeyFormat{MaxLength: 3, Chars: "0123456789.", Syntax: httponce.StringOnly},
	})
	put := func(key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("PUT", "/orders", strings.NewReader("x"))
		r.Header.Set("X-Request-Key", key)
		return serve(h, r)
	}
	wantResponse(t, put(`"1.2"`), 201, "run 1 of x")
	wantResponse(t, put(`"1.2"`), 201, "run 1 of x")
	wantProblem(t, put("1.2"), 400, "idempotency_key_invalid")
	wantProblem(t, put(`"1.23"`), 400, "idempotency_key_invalid")
	wantProblem(t, put(`"a"`), 400, "idempotency_key_invalid")
	wantProblem(t, serve(h, httptest.NewRequest("PUT", "/orders", nil)), 400, "idempotency_key_missing")
	wantResponse(t, post(h, "k", "y"), 201, "run 2 of y")
}

func TestConfig_TheOperationIsTheRouteWithItsMethod(t *testing.T) {
	var runs atomic.Int32
	var operations []string
	g := newGuard(onlyonce.Config{})
	h := httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operations = append(operations, onlyonce.Current(r.Context()).Record().ID.Operation)
		counter(&runs).ServeHTTP(w, r)
	}), single)
	mux := http.NewServeMux()
	mux.Handle("POST /v1/orders/{id}", h)
	mux.Handle("/v1/any", h)
	mux.Handle("PATCH example.com/v1/here", h)
	for _, r := range []*http.Request{
		keyed("POST", "/v1/orders/1", "k", "x"), keyed("POST", "/v1/any", "k", "x"), keyed("PATCH", "http://example.com/v1/here", "k", "x"),
	} {
		serve(mux, r)
	}
	serve(h, keyed("POST", "/no/mux", "k", "x"))
	serve(h, keyed("POST", "/"+strings.Repeat("long", 300), "k", "x"))
	if want := "[POST /v1/orders/{id} POST /v1/any PATCH example.com/v1/here POST /no/mux sha256:"; !strings.HasPrefix(fmt.Sprint(operations), want) {
		t.Fatalf("operations %v, want %v…", operations, want)
	}
	wantProblem(t, serve(mux, keyed("POST", "/v1/orders/2", "k", "x")), 422, "idempotency_key_reused")
}

func TestConfig_WithoutAnOperationAKeyIsOneForAllRoutes(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), httponce.Config{
		Tenant: httponce.SingleTenant, Operation: func(*http.Request) string { return "" }, MismatchStatus: 409,
	})
	wantResponse(t, serve(h, keyed("POST", "/a", "k", "x")), 201, "run 1 of x")
	wantProblem(t, serve(h, keyed("POST", "/b", "k", "x")), 409, "idempotency_key_reused")
	wantProblem(t, serve(h, keyed("PATCH", "/a", "k", "x")), 409, "idempotency_key_reused")
}

// http.StripPrefix hides a part of the path from the pattern and from the handler.
func TestConfig_OneKeyUnderTwoPrefixesIsTwoRequests(t *testing.T) {
	var runs atomic.Int32
	orders := http.NewServeMux()
	orders.Handle("POST /orders", httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), httponce.Config{Tenant: httponce.SingleTenant}))
	h := http.NewServeMux()
	for _, prefix := range []string{"/eu", "/us", "/eu/eu"} {
		h.Handle(prefix+"/", http.StripPrefix(prefix, orders))
	}
	for _, c := range []struct {
		target string
		status int
	}{
		{"/eu/orders?a=1&b=2", 201},
		{"/eu/orders?b=2&a=1", 201},
		{"/us/orders?a=1&b=2", 422},
		{"/eu/eu/orders?a=1&b=2", 422},
	} {
		if w := serve(h, keyed("POST", c.target, "k", "tea")); w.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.target, w.Code, w.Body, c.status)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestConfig_WhatARepeatMustHaveTheSame(t *testing.T) {
	first := func() *http.Request { return keyed("POST", "/a%2Fb?x=1&y=2&x=3", "k", `{"a":1,"b":[1,2]}`) }
	body := func(s string) func(*http.Request) {
		return func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(s)); r.ContentLength = int64(len(s)) }
	}
	target := func(s string) func(*http.Request) {
		return func(r *http.Request) { r.URL = httptest.NewRequest("POST", s, nil).URL }
	}
	oneOperation := func(*http.Request) string { return "" }
	raw := httponce.Config{Tenant: httponce.SingleTenant, Operation: oneOperation}
	canonical, field, none, own := raw, raw, raw, raw
	canonical.Fingerprint = httponce.CanonicalJSON()
	field.Fingerprint = httponce.CanonicalJSON("/a")
	none.SkipFingerprint = true
	own.Fingerprint = func(r *http.Request, body []byte) []byte { return []byte("hash " + r.Header.Get("X-Hash")) }
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		same   string // in which of raw, canonical, field, none, own
	}{
		{"nothing", func(*http.Request) {}, "raw canonical field none own"},
		{"the method", func(r *http.Request) { r.Method = "PATCH" }, "none own"},
		{"the path", target("/a/b?x=1&y=2&x=3"), "none own"},
		{"the escaping of the path", target("/a%252Fb?x=1&y=2&x=3"), "none own"},
		{"a parameter", target("/a%2Fb?x=1&y=3&x=3"), "none own"},
		{"the order of names in the query", target("/a%2Fb?y=2&x=1&x=3"), "raw canonical field none own"},
		{"the order of a name's values", target("/a%2Fb?x=3&y=2&x=1"), "none own"},
		{"the content type", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, "none own"},
		{"a content encoding", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, "none own"},
		{"two content types", func(r *http.Request) { r.Header.Add("Content-Type", "") }, "none own"},
		{"another header", func(r *http.Request) { r.Header.Set("User-Agent", "other") }, "raw canonical field none own"},
		{"the spelling of the body", body(`{ "b": [1.0,2], "a": 1 }`), "canonical field none own"},
		{"a field that may not count", body(`{"a":1,"b":[1,3]}`), "field none own"},
		{"the field that counts", body(`{"a":2,"b":[1,2]}`), "none own"},
		{"a body that is no JSON", body(`{"a":1,`), "none own"},
		{"no body", body(""), "none own"},
		{"what the own function looks at", func(r *http.Request) { r.Header.Set("X-Hash", "x") }, "raw canonical field none"},
	} {
		for mode, cfg := range map[string]httponce.Config{"raw": raw, "canonical": canonical, "field": field, "none": none, "own": own} {
			var runs atomic.Int32
			h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
			r := first()
			c.change(r)
			serve(h, first())
			same := serve(h, r).Code == 201
			if want := strings.Contains(" "+c.same+" ", " "+mode+" "); same != want {
				t.Errorf("%s: another %s: the same request %v, want %v", mode, c.name, same, want)
			}
		}
	}
}

func TestConfig_TheOrderOfAQueryCountsWhereNamesMayBeTheSame(t *testing.T) {
	oneOperation := single
	oneOperation.Operation = func(*http.Request) string { return "" }
	for _, c := range []struct {
		first, repeat string
		same          bool
	}{
		{"a=1&b=2", "b=2&a=1", true},
		{"a=1&b=2&a=3", "b=2&a=1&a=3", true},
		{"user_id=1&user_name=2", "user_name=2&user_id=1", true},
		{"pageSize=1&page-size=2", "page-size=2&pageSize=1", true},
		{"a[x]=1&b[]=2", "b[]=2&a[x]=1", true},
		{"amount=1&amoun%74=2", "amoun%74=2&amount=1", false},
		{"a=1&a[]=2", "a[]=2&a=1", false},
		{"a[0]=1&a[1]=2", "a[1]=2&a[0]=1", false},
		{"a=1&A=2", "A=2&a=1", false},
		{"a.b=1&a_b=2", "a_b=2&a.b=1", false},
		{"a.b=1&a.c=2", "a.c=2&a.b=1", true},
		{"a[=1&a_=2", "a_=2&a[=1", false},
		{"a[b=1&a_b=2", "a_b=2&a[b=1", false},
		{"a]=1&a=2", "a=2&a]=1", false},
		{"[a]=1&a=2", "a=2&[a]=1", false},
		{"[]a=1&a=2", "a=2&[]a=1", false},
		{".a=1&a=2", "a=2&.a=1", false},
		{"a.b=1&a[b]=2", "a[b]=2&a.b=1", false},
		{"a[b]=1.5&c=2.5", "c=2.5&a[b]=1.5", true},
		{"a+b=1&a_b=2", "a_b=2&a+b=1", false},
		{"a=1&%61=2", "%61=2&a=1", false},
		{"a=1&+a=2", "+a=2&a=1", false},
		{"a=1;b=2&b=3", "b=3&a=1;b=2", false},
		{"a=1&b=2;a=3", "b=2;a=3&a=1", false},
		{"a&b", "b&a", true},
		{"a=1&b=2", "a=1&b=2&", false},
	} {
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), oneOperation)
		serve(h, keyed("POST", "/x?"+c.first, "k", "x"))
		if same := serve(h, keyed("POST", "/x?"+c.repeat, "k", "x")).Code == 201; same != c.same {
			t.Errorf("%s and %s: the same request %v", c.first, c.repeat, same)
		}
	}
}

// Sorting parameters takes much more memory than their text, and no limit counts it.
func TestSecurity_TheParametersOfALongQueryAreNotSorted(t *testing.T) {
	for n, same := range map[int]bool{1000: true, 1001: false} {
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
		rest := strings.Repeat("&c", n-2)
		serve(h, keyed("POST", "/x?a&b"+rest, "k", "x"))
		if got := serve(h, keyed("POST", "/x?b&a"+rest, "k", "x")).Code == 201; got != same {
			t.Errorf("%d parameters in another order: the same request %v, want %v", n, got, same)
		}
	}
}

func TestConfig_TheNamedHeadersCountWhateverElseDoes(t *testing.T) {
	for mode, cfg := range map[string]httponce.Config{
		"raw": {}, "canonical": {Fingerprint: httponce.CanonicalJSON()}, "none": {SkipFingerprint: true},
	} {
		cfg.Tenant, cfg.FingerprintHeaders = httponce.SingleTenant, []string{"x-account", "Host"}
		for _, c := range []struct {
			what   string
			change func(*http.Request)
			same   bool
		}{
			{"nothing", func(*http.Request) {}, true},
			{"another header", func(r *http.Request) { r.Header.Set("X-Other", "x") }, true},
			{"the host in another case", func(r *http.Request) { r.Host = strings.ToUpper(r.Host) }, true},
			{"another value", func(r *http.Request) { r.Header.Set("X-Account", "2") }, false},
			{"two values", func(r *http.Request) { r.Header.Add("X-Account", "1") }, false},
			{"no value", func(r *http.Request) { r.Header.Del("X-Account") }, false},
			{"another host", func(r *http.Request) { r.Host = "other.example" }, false},
			{"another body", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("[]")), 2 }, mode == "none"},
		} {
			var runs atomic.Int32
			h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
			ask := func() *http.Request {
				r := keyed("POST", "/x", "k", "{}")
				r.Header.Set("X-Account", "1")
				return r
			}
			serve(h, ask())
			r := ask()
			c.change(r)
			if same := serve(h, r).Code == 201; same != c.same || runs.Load() != 1 {
				t.Errorf("%s, %s: the same request %v, %d runs", mode, c.what, same, runs.Load())
			}
		}
	}
}

func TestConfig_ABodyThatIsNoJSONIsComparedByItsBytes(t *testing.T) {
	var runs atomic.Int32
	cfg := single
	cfg.Fingerprint = httponce.CanonicalJSON()
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	wantResponse(t, post(h, "k", `{"a":1,"a":2}`), 201, `run 1 of {"a":1,"a":2}`)
	wantResponse(t, post(h, "k", `{"a":1,"a":2}`), 201, `run 1 of {"a":1,"a":2}`)
	wantProblem(t, post(h, "k", `{"a":1, "a":2}`), 422, "idempotency_key_reused")
}

func TestConfig_ARequestForWhichTheFingerprintIsForgottenIsRejected(t *testing.T) {
	for name, forgotten := range map[string][]byte{"nil": nil, "empty": {}} {
		var runs atomic.Int32
		var told error
		cfg := single
		cfg.Fingerprint = func(*http.Request, []byte) []byte { return forgotten }
		cfg.FingerprintSecret = bytes.Repeat([]byte("s"), 32)
		cfg.Problem = func(w http.ResponseWriter, r *http.Request, p httponce.Problem) { told = p.Err; p.ServeHTTP(w, r) }
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		wantProblem(t, post(h, "k", "x"), 500, "command_failed")
		if runs.Load() != 0 || told == nil || !strings.Contains(told.Error(), "SkipFingerprint") {
			t.Errorf("%s: ran %d times, error %v", name, runs.Load(), told)
		}
	}
}

func TestConfig_AHashIsNotTakenForTheDocumentItIsOf(t *testing.T) {
	fingerprint := httponce.CanonicalJSON()
	r := keyed("POST", "/orders", "k", "")
	hash, err := onlyonce.FingerprintJSON([]byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(fingerprint(r, []byte(`{"a":1}`)), fingerprint(r, hash)) {
		t.Fatal("a document and its hash have one fingerprint")
	}
}
