package proxycmd

import (
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// everySetting has a value other than the default for each setting of an upstream and a route.
const everySetting = `
tenant: {single: true}
store: {url: "memory://", limit: 1001MiB}
server: {memory: 1002MiB, body_timeout: 11s}
upstreams:
  - url: http://127.0.0.1:1
    http2: true
    keep_host: true
    one_request_per_connection: true
    timeouts: {connect: 12s, response: 13s, stall: 14s, body: 15s, idle: 16s}
    max_connections: 1003
routes:
  - match: POST /orders
    methods: [PUT, POST]
    operation: order
    key: {required: true, header: X-Key, pointer: /id, strict: true, max_length: 104, chars: abc}
    fingerprint: {mode: json, headers: [X-Account], fields: [/a]}
    summary: [path, /amount]
    prefer_wait: 17s
    responses: {statuses: [201, 404], unknown_statuses: [503], keep_errors: true, no_body: true, drop_headers: [X-A], allow_headers: [X-Token]}
    errors: {docs_url: "https://api.example.com/errors"}
    limits: {body: 105KiB, other: 106KiB, response: 107KiB, new_keys: 108, in_flight: 109, tenant_memory: 110MiB, tenant_stored: 111MiB}
    headers:
      request: {add: {X-B: b}, drop: [X-C]}
      response: {add: {X-D: d}, drop: [X-E]}
    keep_overrides: true
    upgrades: false
`

func TestRoutes_EverySettingOfTheFileReachesTheProxy(t *testing.T) {
	f, err := proxyfile.Parse("proxy.yaml", []byte(everySetting))
	if err != nil {
		t.Fatal(err)
	}
	b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), slog.New(slog.DiscardHandler), nil)
	routes, _, err := b.build(f, tenantResolver{of: func(*http.Request) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	r := routes[0]
	once, up := r.Idempotency, r.Upstream
	fingerprint := func(body string) string {
		req, err := http.NewRequest(http.MethodPost, "/orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(once.Fingerprint(req, []byte(body)))
	}
	for name, c := range map[string]struct{ got, want any }{
		"store.limit":         {once.MaxStored, int64(1001 << 20)},
		"server.memory":       {once.MaxMemory, int64(1002 << 20)},
		"server.body_timeout": {b.config(f).BodyTimeout, 11 * time.Second},

		"url":                        {up.URL.String(), "http://127.0.0.1:1"},
		"http2":                      {up.HTTP2, true},
		"keep_host":                  {up.KeepHost, true},
		"one_request_per_connection": {up.OneRequestPerConn, true},
		"timeouts":                   {[]time.Duration{up.DialTimeout, up.TLSTimeout, up.HeaderTimeout, up.StallTimeout, up.BodyTimeout, up.KeepIdle}, []time.Duration{12e9, 12e9, 13e9, 14e9, 15e9, 16e9}},
		"max_connections":            {up.MaxConns, 1003},

		"match":                      {[]string{r.Method, r.Pattern}, []string{"POST", "/orders"}},
		"methods":                    {once.Methods, []string{"PUT", "POST"}},
		"operation":                  {once.Operation(nil), "order"},
		"key.required":               {once.Required, true},
		"key.header":                 {once.Header, "X-Key"},
		"key.pointer":                {r.KeyPointer, "/id"},
		"key":                        {once.KeyFormat, httponce.KeyFormat{Syntax: httponce.StringOnly, MaxLength: 104, Chars: "abc"}},
		"fingerprint.mode":           {fingerprint(`{"a": 1}`), fingerprint(`{"a":1}`)},
		"fingerprint.fields":         {fingerprint(`{"a":1,"b":1}`), fingerprint(`{"a":1}`)},
		"fingerprint.headers":        {once.FingerprintHeaders, []string{"X-Account"}},
		"summary":                    {once.Summary, []string{"/amount"}},
		"prefer_wait":                {once.MaxWait, 17 * time.Second},
		"responses.statuses":         {[]bool{once.StoreStatus(201), once.StoreStatus(404), once.StoreStatus(200)}, []bool{true, true, false}},
		"responses.unknown_statuses": {[]bool{once.UnknownStatus(503), once.UnknownStatus(502)}, []bool{true, false}},
		"responses.keep_errors":      {once.KeepErrors, true},
		"responses.no_body":          {r.DontStoreBody, true},
		"responses.drop_headers":     {once.ReplayHeader("X-A", true), false},
		"responses.allow_headers":    {once.ReplayHeader("X-Token", false), true},
		"errors.docs_url":            {once.DocsURL, "https://api.example.com/errors"},
		"limits.body":                {once.MaxBody, int64(105 << 10)},
		"limits.other":               {r.MaxBody, int64(106 << 10)},
		"limits.response":            {once.MaxResponse, 107 << 10},
		"limits.new_keys":            {once.MaxNewKeys, 108},
		"limits.in_flight":           {once.MaxInFlight, 109},
		"limits.tenant_memory":       {once.MaxTenantMemory, int64(110 << 20)},
		"limits.tenant_stored":       {once.MaxTenantStored, int64(111 << 20)},
		"headers.request":            {[]any{r.SetHeader, r.DropHeader}, []any{http.Header{"X-B": {"b"}}, []string{"X-C"}}},
		"headers.response":           {[]any{r.SetResponseHeader, r.DropResponseHeader}, []any{http.Header{"X-D": {"d"}}, []string{"X-E"}}},
		"keep_overrides":             {r.KeepOverrides, true},
		"upgrades":                   {r.NoUpgrade, true},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: the proxy has %v, want %v", name, c.got, c.want)
		}
	}
}

func TestRoutes_TheTimesOfTheFileReachTheGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := proxyfile.Parse("proxy.yaml", []byte("tenant: {single: true}\nupstreams: [{url: \"http://127.0.0.1:1\"}]\n"+
			"routes: [{match: /orders, lease: 21s, wait: 5s, keep: 22s, remember: 23s}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		store := memstore.New(memstore.Config{})
		routes, _, err := newRouteBuilder(store, metrics.New(), slog.New(slog.DiscardHandler), nil).build(f, tenantResolver{})
		if err != nil {
			t.Fatal(err)
		}
		req := onlyonce.Request{ID: onlyonce.ID{Key: "k"}, SkipFingerprint: true}
		begin := func() (*onlyonce.Attempt, error) { return routes[0].Guard.Begin(t.Context(), req) }
		a, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := store.Lookup(t.Context(), req.ID); err != nil || rec.LeaseLeft != 21*time.Second {
			t.Errorf("lease %v, %v", rec.LeaseLeft, err)
		}
		began := time.Now()
		if _, err := begin(); !errors.Is(err, onlyonce.ErrInFlight) || time.Since(began) != 5*time.Second {
			t.Errorf("a repeat waited for %v: %v", time.Since(began), err)
		}
		if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(22*time.Second - time.Nanosecond)
		if again, err := begin(); err != nil || !again.Replayed() {
			t.Errorf("within keep: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := begin(); !errors.Is(err, onlyonce.ErrKeyExpired) {
			t.Errorf("after keep: %v", err)
		}
		time.Sleep(time.Second)
		if again, err := begin(); err != nil || again.Replayed() {
			t.Errorf("after remember: %v", err)
		}
	})
}
