package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

func TestProxy_PathsThatNobodyConfiguredAreInNoLabelAndInNoLog(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, plainFile+"routes: [{match: POST /things}, {match: /both/}, {match: POST /named, operation: naming}]\nlog_level: debug\n", "--admin", "127.0.0.1:0")
	for n := range 60 {
		if got := s.do("POST", fmt.Sprintf("/reset/secret-token-%d", n), "a", "Idempotency-Key", "k"); got.status != 201 {
			t.Fatalf("%+v", got)
		}
	}
	s.do("POST", "/reset/secret-token-0", "b", "Idempotency-Key", "k")
	s.do("POST", "/reset/secret-token-0", "a", "Idempotency-Key", "k")
	s.send("k", "a")
	s.do("PATCH", "/both/1", "a", "Idempotency-Key", "k")
	s.do("POST", "/named", "a", "Idempotency-Key", "k")
	up.Close()
	s.do("POST", "/reset/secret-token-x", "a", "Idempotency-Key", "k2")
	text := s.at(s.adminURL(t)).counts(
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="executed"} 60`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="mismatch"} 1`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="replayed"} 1`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="POST /things",outcome="executed"} 1`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="PATCH /both/",outcome="executed"} 1`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="naming",outcome="executed"} 1`,
	)
	s.logs(t, "request failed")
	if strings.Contains(text, "secret-token") || strings.Contains(s.log.String(), "secret-token") {
		t.Errorf("metrics or log have the path:\n%s", s.log.String())
	}
	id := onlyonce.ID{Tenant: httponce.SingleTenant(nil), Operation: "POST /reset/secret-token-0", Key: "k"}
	hash := id.Hash()
	if want := fmt.Sprintf(`"operation":"POST (no route)","record_id":"%x"`, hash[:8]); !strings.Contains(s.log.String(), want) {
		t.Errorf("the log has no %s:\n%s", want, s.log.String())
	}
}

func TestProxy_KeysAreLoggedInClearOnlyIfThatIsSaid(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	up := newUpstreamServer(t)
	for _, raw := range []bool{false, true} {
		var args []string
		if raw {
			args = []string{"--log-keys", "raw"}
		}
		p := startProxy(t, up.URL, append(args, "--single-tenant")...)
		s := startServe(t, t.TempDir(), args...)
		for range 2 {
			p.send("the-key", "a")
			s.post("the-key", "a")
			s.do("POST", "/orders", `{"product_id":"prod-1","quantity":2}`, "Idempotency-Key", "the-key")
			s.do("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "the-key", "X-Owner", "ada")
		}
		p.logs(t, "idempotency_hit")
		want := map[bool]int{false: 0, true: 1}[raw]
		if got := strings.Count(p.log.String(), `"idempotency_key":"the-key"`); got != want {
			t.Errorf("raw %t: %d lines of the proxy have the key:\n%s", raw, got, p.log.String())
		}
		cmdtest.Until(t, "all three are logged", func() bool { return strings.Count(s.log.String(), "idempotency_hit") == 3 })
		if got := strings.Count(s.log.String(), `"idempotency_key":"the-key"`); got != 3*want {
			t.Errorf("raw %t: %d lines of serve have the key:\n%s", raw, got, s.log.String())
		}
		if !strings.Contains(s.log.String(), `"duration_ms":`) || strings.Contains(s.log.String(), `"duration":`) {
			t.Errorf("a duration has no unit:\n%s", s.log.String())
		}
	}
}

func TestLog_ALineLeadsToTheRequestAndToItsRecord(t *testing.T) {
	t.Parallel()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ids := []string{"X-Request-Id", "req-17", "Traceparent", trace}
	up := newUpstreamServer(t)
	store := "sqlite:" + filepath.Join(t.TempDir(), "records.db")
	p := startProxy(t, up.URL, "--single-tenant", "--store", store, "--log-level", "debug")
	p.send("k", "a", ids...)
	dir := t.TempDir()
	s := startServe(t, dir, "--log-level", "debug")
	for path, body := range map[string]string{"/api/v1/items": `{"sku":"S-1","title":"Lamp","status":"active"}`, "/v1/sandboxes": "{}", "/orders": oneOrder} {
		s.do("POST", path, body, append(ids, "Idempotency-Key", "k")...)
	}
	up.Close()
	p.send("k2", "a", ids...)
	p.logs(t, `"msg":"idempotency released"`) // which comes last
	cmdtest.Until(t, "the three APIs have logged their commands", func() bool {
		log := s.log.String()
		return strings.Count(log, `"msg":"idempotency executed"`)-strings.Count(log, `"operation":"orders-shipping"`) == 3
	})
	for _, c := range []struct {
		at     *served
		store  string
		events map[string]int
	}{
		{p, store, map[string]int{"idempotency executed": 1, "idempotency released": 1, "request failed": 1}},
		{s, "sqlite:" + filepath.Join(dir, "onlyonce.db"), map[string]int{"idempotency executed": 3}},
	} {
		found := make(map[string]int)
		for line := range strings.Lines(c.at.log.String()) {
			var l struct {
				Msg, Operation, Traceparent string
				RecordID                    string `json:"record_id"`
				RequestID                   string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			if _, ok := c.events[l.Msg]; !ok || l.Operation == "orders-shipping" { // which a message began
				continue
			}
			found[l.Msg]++
			if l.RequestID != "req-17" || l.Traceparent != trace || l.RecordID == "" {
				t.Errorf("%s", line)
			}
			if l.Msg == "idempotency executed" {
				if out := onlyonceWith(nil, "records", "show", c.store, l.RecordID); !strings.Contains(out, "completed") {
					t.Errorf("%s leads to %s", line, out)
				}
			}
		}
		if !maps.Equal(found, c.events) {
			t.Errorf("found %v, want %v", found, c.events)
		}
	}
}

func TestProxy_TheLogAndTheRecordSayWhyAnOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	up.hold = make(chan struct{})
	defer close(up.hold)
	store := "sqlite:" + filepath.Join(t.TempDir(), "records.db")
	s, _ := startProxyFile(t, up.URL, `
tenant: {single: true}
upstreams: [{url: UP, timeouts: {response: 50ms}}]
routes: [{match: POST /things}]
`, "--store", store)
	s.send("k", "a", "X-Request-Id", "req-17")
	s.logs(t, `"msg":"idempotency unknown"`) // which comes last
	const cause = "the upstream timed out after "
	seen := make(map[string]bool)
	for line := range strings.Lines(s.log.String()) {
		var l struct {
			Level, Msg, Error, Route, Operation string
			RecordID                            string `json:"record_id"`
			RequestID                           string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Level == "INFO" || strings.HasPrefix(l.Msg, "the store is ") { // as it may be on a slow disk
			continue
		}
		seen[l.Level+" "+l.Msg] = true
		if !strings.Contains(l.Error, cause) || l.Route+l.Operation != "POST /things" || l.RequestID != "req-17" {
			t.Errorf("%s", line)
		}
		if out := onlyonceWith(nil, "records", "show", store, l.RecordID); !strings.Contains(out, cause) {
			t.Errorf("%s leads to\n%s", line, out)
		}
	}
	if !seen["WARN request failed"] || !seen["ERROR idempotency unknown"] || len(seen) != 2 {
		t.Errorf("%v are logged", seen)
	}
}
