package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

func TestProxy_SettingsOfAFileCount(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, `
tenant: {single: true}
upstreams: [{url: UP}]
defaults:
  errors: {format: stripe}
  headers: {request: {add: {X-Added: "yes"}, drop: [X-Secret]}, response: {add: {X-From: proxy}}}
routes:
  - match: POST /strict
    key: {required: true, header: X-Request-Key, max_length: 5}
  - match: POST /body
    key: {pointer: /meta/id}
    fingerprint: {mode: json, fields: [/amount]}
    responses: {no_body: true}
  - match: PUT /template/{id}
    operation: put
    key: {required: true}
    limits: {body: 10}
    errors: {format: template, template: '{"oops":{{.Code}},"s":{{.Status}}}', content_type: application/x}
  - match: POST /few
    responses: {statuses: [204]}
`)
	got := s.do("POST", "/strict", "x")
	if got.status != 400 || !strings.Contains(got.body, `{"error":{"type":"idempotency_error","code":"idempotency_key_missing"`) {
		t.Errorf("without a key: %+v", got)
	}
	if got := s.do("POST", "/strict", "x", "X-Request-Key", "123456"); got.status != 400 {
		t.Errorf("with a key that is too long: %+v", got)
	}
	first := s.do("POST", "/strict", "x", "X-Request-Key", "12345", "X-Secret", "s")
	again := s.do("POST", "/strict", "x", "X-Request-Key", "12345")
	if first.status != 201 || first.body != again.body || again.header.Get("X-From") != "proxy" {
		t.Errorf("%+v, then %+v", first, again)
	}
	if h := up.last().Header; h.Get("X-Added") != "yes" || h.Get("X-Secret") != "" || h.Get("X-Request-Key") != "12345" {
		t.Errorf("the upstream got %v", h)
	}
	first = s.do("POST", "/body", `{"meta":{"id":"k"},"amount":1.0,"note":"a"}`)
	again = s.do("POST", "/body", `{"note":"b","amount":1,"meta":{"id":"k"}}`)
	if first.status != 201 || again.status != 201 || again.body != "" || again.header.Get("Idempotency-Replay") != "omitted" {
		t.Errorf("%+v, then %+v", first, again)
	}
	if got := s.do("POST", "/body", `{"amount":2,"meta":{"id":"k"}}`); got.status != 422 {
		t.Errorf("another amount: %+v", got)
	}
	if got := s.do("PUT", "/template/7", "x"); got.status != 400 || got.body != `{"oops":"idempotency_key_missing","s":400}` || got.header.Get("Content-Type") != "application/x" {
		t.Errorf("%+v", got)
	}
	if got := s.do("PUT", "/template/7", "more than ten", "Idempotency-Key", "k"); got.status != 413 || got.body != `{"oops":"body_too_large","s":413}` {
		t.Errorf("%+v", got)
	}
	before := up.runs()
	s.do("POST", "/few", "x", "Idempotency-Key", "k")
	s.do("POST", "/few", "x", "Idempotency-Key", "k")
	if n := up.runs() - before; n != 2 {
		t.Errorf("a response that is not stored ran %d times", n)
	}
}

func TestProxy_AnOperationAndStoredHeadersAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, `
tenant: {single: true}
upstreams: [{url: UP, keep_host: true}]
routes:
  - {match: POST /a, operation: shared}
  - {match: POST /b, operation: shared}
  - {match: POST /keep, responses: {keep_headers: [x-run]}}
  - {match: POST /drop, responses: {drop_headers: [x-run]}}
  - {match: POST /allow, responses: {allow_headers: [x-page-token]}, headers: {response: {add: {X-Page-Token: p, X-Auth-Token: a}}}}
`)
	s.do("POST", "/a", "x", "Idempotency-Key", "k")
	if got := s.do("POST", "/b", "x", "Idempotency-Key", "k"); got.status != 422 {
		t.Errorf("the same key of the same operation: %+v", got)
	}
	if host := up.last().Host; host != strings.TrimPrefix(s.url, "http://") {
		t.Errorf("the upstream was asked as %s", host)
	}
	for path, want := range map[string]struct {
		run   bool
		other string
	}{"/keep": {true, ""}, "/drop": {false, "o"}} {
		first := s.do("POST", path, "x", "Idempotency-Key", "k")
		again := s.do("POST", path, "x", "Idempotency-Key", "k")
		if first.header.Get("X-Run") == "" || first.header.Get("X-Other") != "o" || again.header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %v, then %v", path, first.header, again.header)
		}
		if run := again.header.Get("X-Run") != ""; run != want.run || again.header.Get("X-Other") != want.other {
			t.Errorf("%s is replayed with %v", path, again.header)
		}
	}
	first := s.do("POST", "/allow", "x", "Idempotency-Key", "k")
	again := s.do("POST", "/allow", "x", "Idempotency-Key", "k")
	if first.header.Get("X-Auth-Token") != "a" || again.header.Get("X-Auth-Token") != "" || again.header.Get("X-Page-Token") != "p" {
		t.Errorf("/allow: %v, then %v", first.header, again.header)
	}
}

func TestProxy_AResponseThatIsLateIsUnknownAndHeld(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	up.hold = make(chan struct{})
	defer close(up.hold)
	s, _ := startProxyFile(t, up.URL, `
tenant: {single: true}
upstreams: [{url: UP, timeouts: {response: 50ms}}]
defaults: {unknown: hold}
`, "--admin", "127.0.0.1:0")
	if got := s.send("k", "a"); got.status != 504 || !strings.Contains(got.body, "upstream_failed") {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if got := s.send("k", "a"); got.status != 409 || !strings.Contains(got.body, "outcome_unknown") {
			t.Errorf("a repeat: %+v", got)
		}
	}
	cmdtest.Until(t, "the upstream was asked", func() bool { return up.runs() > 0 })
	if up.runs() != 1 {
		t.Errorf("%d runs", up.runs())
	}
	s.at(s.adminURL(t)).counts(
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="unknown"} 1`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="held"} 2`,
	)
	cmdtest.Until(t, "both repeats are logged", func() bool {
		return strings.Count(s.log.String(), `"level":"WARN","msg":"idempotency held"`) == 2
	})
	if n := strings.Count(s.log.String(), `"level":"ERROR"`); n != 1 {
		t.Errorf("%d errors are logged:\n%s", n, s.log.String())
	}
}

func TestSecurity_WhileTheStoreIsAwayNothingWithAKeyRuns(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	path := filepath.Join(t.TempDir(), "keys.db")
	s := startProxy(t, up.URL, "--single-tenant", "--store", "sqlite:"+path, "--admin", "127.0.0.1:0")
	if got := s.send("k", "a"); got.status != 201 {
		t.Fatalf("%+v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := s.send("new", "a"); got.status != 503 || !strings.Contains(got.body, "store_unavailable") || up.runs() != 1 {
		t.Errorf("%+v after %d runs", got, up.runs())
	}
	if got := s.get("/"); got.status != 200 {
		t.Errorf("a request without a key: %+v", got)
	}
}

func TestSecurity_NewKeysOfATenantAreLimited(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, `
tenant: {header: X-Tenant-ID}
upstreams: [{url: UP}]
defaults: {limits: {new_keys: 2}}
`)
	for n, want := range []int{201, 201, 429} {
		if got := s.send(fmt.Sprintf("k-%d", n), "a", "X-Tenant-ID", "alice"); got.status != want {
			t.Errorf("key %d: %+v", n, got)
		}
	}
	s.send("k-2", "a", "X-Tenant-ID", "alice")
	s.logs(t, `"setting":"limits.new_keys"`)
	if n := strings.Count(s.log.String(), "limits.new_keys"); n != 1 {
		t.Errorf("the limit is logged %d times, want once:\n%s", n, s.log.String())
	}
	if got := s.send("k-3", "a", "X-Tenant-ID", "bob"); got.status != 201 || up.runs() != 3 {
		t.Errorf("another tenant's: %+v", got)
	}
}

func TestProxy_WhatMatchesNoRouteIsRejectedWithoutAKeyIfTheFileSaysSo(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	const routes = "routes:\n  - {match: POST /orders, key: {required: true}}\n  - {match: POST /free}\n"
	for text, status := range map[string]int{"": 201, "unmatched: pass\n": 201, "unmatched: reject\n": 400} {
		s, _ := startProxyFile(t, up.URL, plainFile+routes+text)
		for _, path := range []string{"/orders.json", "/api/orders", "/"} {
			n := up.runs()
			if got := s.do("POST", path, "a"); got.status != status || status == 400 && (!strings.Contains(got.body, "idempotency_key_missing") || up.runs() != n) {
				t.Errorf("%q: POST %s: %+v", text, path, got)
			}
			if got := s.do("POST", path, "a", "Idempotency-Key", "k"); got.status != 201 {
				t.Errorf("%q: POST %s with a key: %+v", text, path, got)
			}
		}
		if got := s.do("POST", "/free", "a"); got.status != 201 {
			t.Errorf("%q: a route without a key: %+v", text, got)
		}
		if got := s.do("POST", "/orders", "a"); got.status != 400 {
			t.Errorf("%q: a route that asks for a key: %+v", text, got)
		}
		if got := s.get("/other"); got.status != 200 {
			t.Errorf("%q: GET: %+v", text, got)
		}
	}
}

func TestProxy_ARecordHasTheSummaryThatTheFileAsksFor(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	store := "sqlite:" + filepath.Join(t.TempDir(), "s.db")
	s, _ := startProxyFile(t, up.URL, `
tenant: {single: true}
upstreams: [{url: UP}]
routes:
  - {match: POST /a, summary: [path, /amount, /card/number, X-Order-ID]}
  - {match: POST /b, summary: [path]}
`, "--store", store)
	for _, path := range []string{"/a", "/b", "/c"} {
		s.do("POST", path+"?token=secret", `{"amount":5,"card":{"number":"4111"}}`, "Idempotency-Key", "k"+path[1:], "X-Order-ID", "o-1")
	}
	for key, want := range map[string]string{"ka": `POST /a X-Order-Id="o-1" /amount=5 /card/number=•••`, "kb": "POST /b", "kc": ""} {
		for _, args := range [][]string{{"show", store, "--key", key, "--json"}, {"export", store, "--key", key}} {
			out := onlyonceWith(nil, append([]string{"records"}, args...)...)
			var got struct{ Summary string }
			if err := json.Unmarshal([]byte(out), &got); err != nil || got.Summary != want {
				t.Errorf("records %v: the summary is %q, want %q (%v, %s)", args, got.Summary, want, err, out)
			}
		}
	}
}

func TestProxy_ACachedResponseIsReplayedWithoutTheStoreUntilItsConsoleDecides(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	store := "sqlite:" + filepath.Join(t.TempDir(), "s.db")
	s, _ := startProxyFile(t, up.URL, `
tenant: {single: true}
upstreams: [{url: UP}]
store: {cache: 1MiB, cache_max_age: 1h}
routes: [{match: POST /slow, wait: 1s}]
`, "--store", store, "--admin", "127.0.0.1:0", "--console-tokens", consoleTokens(t))
	c := openConsole(t, s, "/console/", writersToken)
	remove := map[string]func(key string){
		"by a command": func(key string) {
			if out := onlyonceWith(nil, "records", "rm", store, "--key", key, "--reason", "test", "--yes"); !strings.Contains(out, "deleted") {
				t.Fatal(out)
			}
		},
		"in the console": func(key string) {
			page := c.get("records?key=" + key)
			link := regexp.MustCompile(`/console/(records/[0-9a-f]{16,})`).FindStringSubmatch(page)
			if link == nil {
				t.Fatalf("no record of %s:\n%s", key, page)
			}
			form := url.Values{"action": {"delete"}, "sure": {"yes"}, "reason": {"test"}, "keep": {"24h"}}
			for _, hidden := range regexp.MustCompile(`name="(fence|state)" value="([^"]*)"`).FindAllStringSubmatch(c.get(link[1]), -1) {
				form.Set(hidden[1], hidden[2])
			}
			if page := c.submit(link[1], link[1], form); !strings.Contains(page, "Deleted by a person") {
				t.Fatalf("the decision about %s got\n%s", key, page)
			}
		},
	}
	for path := range map[string]bool{"/things": true, "/slow": true} { // each has a Guard of its own
		for how, want := range map[string]int{"by a command": 0, "in the console": 1} {
			key := "k" + strings.ReplaceAll(path+" "+how, " ", "-")[1:]
			send := func() answer { return s.do("POST", path, "a", "Idempotency-Key", key) }
			first, before := send(), up.runs()
			remove[how](key)
			if again := send(); first.status != 201 || again.status != 201 || up.runs() != before+want || (again.body == first.body) != (want == 0) {
				t.Errorf("%s: after the record was deleted %s: %+v after %+v, and the upstream ran %d more; want %d", path, how, again, first, up.runs()-before, want)
			}
		}
	}
}
