package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// longBody is a body that is too long for every API.
var longBody = `{"x":"` + strings.Repeat("x", 300<<10) + `"}`

// rejections are the requests that every operation rejects in the same way.
func rejections(method, path, target, body string) []describedRequest {
	all := []describedRequest{
		{method: method, path: path, target: target, body: body, header: []string{"Authorization", "Bearer wrong"}, want: 401},
	}
	if method != "GET" {
		all = append(all, describedRequest{method: method, path: path, target: target, body: body, header: []string{"Sec-Fetch-Site", "cross-site"}, want: 403})
	}
	return all
}

func TestOpenAPI_TheItemsAPIIsAsDescribed(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	s := startServe(t, t.TempDir())
	d := describe(t, s, "items")
	const all, one = "/api/v1/items", "/api/v1/items/{id}"
	const good = `{"sku":"LAMP-1","title":"Lamp","status":"active","brand":"Lumen"}`
	key := []string{"Idempotency-Key", "k"}
	strict := startServe(t, t.TempDir(), "--tokens", writeTokens(t, "ada"))
	for _, q := range slices.Concat(rejections("POST", all, "", good), rejections("GET", all, "", ""), rejections("GET", one, all+"/1", "")) {
		on := s
		if q.want == 401 {
			on = strict
		}
		d.check(on, q)
	}
	for _, q := range []describedRequest{
		{method: "POST", path: all, body: good, want: 201},
		{method: "POST", path: all, body: good, header: key, want: 201},
		{method: "POST", path: all, body: good, header: key, want: 201},
		{method: "POST", path: all, body: `{"sku":"LAMP-2","title":"Lamp","status":"draft","category":null}`, header: key, want: 409},
		{method: "POST", path: all, body: `{"sku":"LAMP-2","title":"Lamp","status":"draft"}`, want: 201},
		{method: "POST", path: all, body: `{"sku":"LAMP-3","title":"Lamp","status":"inactive"}`, want: 201},
		{method: "POST", path: all, body: `{"sku":"LAMP-2","title":"Lamp","status":"sold"}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"sku":"LAMP-2","title":"Lamp"}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"sku":"LAMP-2","title":"Lamp","status":"draft","price":1}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"sku":"","title":"Lamp","status":"draft"}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"sku":"` + strings.Repeat("x", 65) + `","title":"Lamp","status":"draft"}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"sku":7,"title":"Lamp","status":"draft"}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: good, header: []string{"Idempotency-Key", "a/b"}, want: 400},
		{method: "POST", path: all, body: longBody, want: 413},
		{method: "POST", path: all, body: good, header: []string{"Content-Encoding", "gzip"}, want: 415},
		{method: "GET", path: all, want: 200},
		{method: "GET", path: all, target: all + "?limit=1", want: 200},
		{method: "GET", path: all, target: all + "?limit=201", want: 400},
		{method: "GET", path: all, header: []string{"Origin", "https://evil.example"}, want: 403},
		{method: "GET", path: one, target: all + "/1", want: 200},
		{method: "GET", path: one, target: all + "/7", want: 404},
		{method: "GET", path: one, target: all + "/1", header: []string{"Origin", "https://evil.example"}, want: 403},
	} {
		d.check(s, q)
	}
	d.checkMethods(s, func(path string) string { return strings.Replace(path, "{id}", "1", 1) })
	d.checkCodes("items", d.at(d.root, "components", "schemas", "Error", "properties", "error_code"))
	d.checkSeen()
}

func TestOpenAPI_TheOrdersAPIIsAsDescribed(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	s := startServe(t, t.TempDir())
	d := describe(t, s, "orders")
	const all, one = "/orders", "/orders/{id}"
	const good = `{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}],"external_ref":"PO-7"}`
	key := func(name string) []string { return []string{"Idempotency-Key", name} }
	made := d.check(s, describedRequest{method: "POST", path: all, body: good, header: key("k"), want: 201})
	target := made.header.Get("Location")
	const other = "/orders/ord_00000000000000000000000000"
	for _, q := range append(slices.Concat(rejections("POST", all, "", good), rejections("GET", all, "", ""), rejections("GET", one, target, "")), []describedRequest{
		{method: "POST", path: all, body: good, header: key("k"), want: 201},
		{method: "POST", path: all, body: `{"product_id":"prod-1","quantity":2,"more":1}`, header: key("short"), want: 201},
		{method: "POST", path: all, body: `{"product_id":"prod-1","quantity":2}`, header: key("k"), want: 422},
		{method: "POST", path: all, body: good, want: 400},
		{method: "POST", path: all, body: `{"items":[]}`, header: key("a"), want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"items":[{"product_id":"p"}]}`, header: key("a"), want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"items":[{"product_id":"p","quantity":1000001}]}`, header: key("a"), want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"items":[{"product_id":"p","quantity":1,"unit_price":"-1"}]}`, header: key("a"), want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"product_id":"p","quantity":1,"external_ref":""}`, header: key("a"), want: 400, wrongBody: true},
		{method: "POST", path: all, body: longBody, header: key("a"), want: 413},
		{method: "POST", path: all, body: good, header: append(key("a"), "Content-Encoding", "gzip"), want: 415},
		{method: "GET", path: all, target: all + "?limit=1", want: 200},
		{method: "GET", path: all, target: all + "?limit=201", want: 400},
		{method: "GET", path: all, header: []string{"Origin", "https://evil.example"}, want: 403},
		{method: "GET", path: one, target: target, want: 200},
		{method: "GET", path: one, target: other, want: 404},
		{method: "GET", path: one, target: all + "/17", want: 400},
		{method: "GET", path: one, target: target, header: []string{"Origin", "https://evil.example"}, want: 403},
	}...) {
		d.check(s, q)
	}
	cmdtest.Until(t, "the order has its shipment", func() bool {
		return strings.Contains(d.check(s, describedRequest{method: "GET", path: one, target: target, want: 200}).body, `"pending"`)
	})
	d.checkMethods(s, func(path string) string { return strings.Replace(path, "{id}", "ord_00000000000000000000000000", 1) })
	d.checkCodes("orders", d.at(d.root, "components", "schemas", "Problem", "properties", "code"))
	d.checkSeen()
}

func TestOpenAPI_TheSandboxesAPIIsAsDescribed(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	s := startServe(t, t.TempDir())
	d := describe(t, s, "sandboxes")
	const all, one = "/v1/sandboxes", "/v1/sandboxes/{id}"
	key := []string{"Idempotency-Key", "k"}
	create := func(body string) string {
		var box struct{ ID string }
		if err := json.Unmarshal([]byte(d.check(s, describedRequest{method: "POST", path: all, body: body, want: 201}).body), &box); err != nil {
			t.Fatal(err)
		}
		return all + "/" + box.ID
	}
	badOwner := []string{"X-Owner", "ada/lovelace"}
	limited, endless, short := create(`{"ttl":3600}`), create(`{}`), create(`{"ttl":1,"profile":null,"workspace_id":null}`)
	const other = all + "/sandbox-00000000000000000000000000"
	requests := slices.Concat(rejections("POST", all, "", `{}`), rejections("GET", all, "", ""), rejections("GET", one, limited, ""), rejections("DELETE", one, limited, ""), []describedRequest{
		{method: "POST", path: all, body: `{"ttl":60}`, header: key, want: 201},
		{method: "POST", path: all, body: `{"ttl":60}`, header: key, want: 201},
		{method: "POST", path: all, body: `{"ttl":61}`, header: key, want: 409},
		{method: "POST", path: all, body: `{"ttl":-1}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"more":1}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"ttl":3153600001}`, want: 400, wrongBody: true},
		{method: "POST", path: all, body: `{"workspace_id":"ws-00000000000000000000000000"}`, want: 400},
		{method: "POST", path: all, body: longBody, want: 413},
		{method: "POST", path: all, body: `{}`, header: []string{"Content-Encoding", "gzip"}, want: 415},
		{method: "GET", path: all, target: all + "?limit=1&status=idle", want: 200},
		{method: "GET", path: all, target: all + "?status=away", want: 400},
		{method: "GET", path: one, target: limited, want: 200},
		{method: "GET", path: one, target: limited, header: badOwner, want: 400},
		{method: "GET", path: one, target: other, want: 404},
		{method: "DELETE", path: one, target: limited, header: badOwner, want: 400},
		{method: "DELETE", path: one, target: other, want: 404},
		{method: "POST", path: one + "/extend_ttl", target: limited + "/extend_ttl", body: `{"extend_by":600}`, header: []string{"Idempotency-Key", "more"}, want: 200},
		{method: "POST", path: one + "/extend_ttl", target: limited + "/extend_ttl", body: `{"extend_by":600}`, header: []string{"Idempotency-Key", "more"}, want: 200},
		{method: "POST", path: one + "/extend_ttl", target: endless + "/extend_ttl", body: `{"extend_by":600}`, want: 409},
		{method: "POST", path: one + "/extend_ttl", target: limited + "/extend_ttl", body: `{"extend_by":86401}`, want: 400, wrongBody: true},
		{method: "POST", path: one + "/extend_ttl", target: limited + "/extend_ttl", body: `{}`, want: 400, wrongBody: true},
		{method: "POST", path: one + "/extend_ttl", target: limited + "/extend_ttl", body: longBody, want: 413},
		{method: "POST", path: one + "/extend_ttl", target: limited + "/extend_ttl", body: `{"extend_by":600}`, header: []string{"Content-Encoding", "gzip"}, want: 415},
	})
	for _, target := range []string{"", limited} {
		path := all
		if target != "" {
			path = one
		}
		requests = append(requests, describedRequest{method: "GET", path: path, target: target, header: []string{"Origin", "https://evil.example"}, want: 403})
	}
	for _, action := range []string{"/start", "/keepalive", "/stop", "/extend_ttl"} {
		body := ""
		if action == "/extend_ttl" {
			body = `{"extend_by":1}`
		} else {
			requests = append(requests, describedRequest{method: "POST", path: one + action, target: limited + action, want: 200})
		}
		requests = append(requests,
			describedRequest{method: "POST", path: one + action, target: limited + action, body: body, header: badOwner, want: 400},
			describedRequest{method: "POST", path: one + action, target: other + action, body: body, want: 404})
		requests = append(requests, rejections("POST", one+action, limited+action, body)...)
	}
	for _, q := range requests {
		d.check(s, q)
	}
	cmdtest.Until(t, "the sandbox has expired", func() bool {
		return strings.Contains(d.check(s, describedRequest{method: "GET", path: one, target: short, want: 200}).body, `"expired"`)
	})
	d.check(s, describedRequest{method: "POST", path: one + "/start", target: short + "/start", want: 409})
	d.check(s, describedRequest{method: "POST", path: one + "/keepalive", target: short + "/keepalive", want: 409})
	d.check(s, describedRequest{method: "POST", path: one + "/extend_ttl", target: short + "/extend_ttl", body: `{"extend_by":1}`, want: 409})
	d.check(s, describedRequest{method: "DELETE", path: one, target: limited, want: 204})
	d.checkMethods(s, func(path string) string {
		return strings.Replace(path, "{id}", "sandbox-00000000000000000000000000", 1)
	})
	d.checkCodes("sandboxes", d.at(d.root, "components", "schemas", "Error", "properties", "error", "properties", "code"))
	d.checkSeen()
}

func TestOpenAPI_TheAdminAddressIsAsDescribed(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	s := startServe(t, t.TempDir(), "--admin", "127.0.0.1:0")
	admin := s.at(s.adminURL(t))
	d := describe(t, admin, "admin")
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		admin.probe(path)
		d.check(admin, describedRequest{method: "GET", path: path, want: 200})
		d.check(admin, describedRequest{method: "GET", path: path, header: []string{"Origin", "https://evil.example"}, want: 403})
	}
	d.checkMethods(admin, func(path string) string { return path })
	d.checkSeen()
	if got := s.get("/openapi/admin.yaml"); got.status != 404 {
		t.Errorf("the address of the APIs describes the admin address, which is another: %d", got.status)
	}
	alone := startServe(t, t.TempDir())
	alone.ready()
	describe(t, alone, "admin").check(alone, describedRequest{method: "GET", path: "/readyz", want: 200})
}
