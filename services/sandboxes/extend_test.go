package sandboxes

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

func (w *world) extend(id, body string, header ...string) reply {
	w.t.Helper()
	return w.send("POST", at(id, "extend_ttl"), body, header...)
}

func TestExtend_AddsToTheEnd(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	got := w.extend(s.ID, `{"extend_by":600}`)
	if got.Status != 200 || got.sandbox.ExpiresAt.Sub(*s.ExpiresAt) != 600*time.Second {
		t.Errorf("got %d %s after %v", got.Status, got.Body, s.ExpiresAt)
	}
}

func TestExtend_ReplaysTheSameExpiresAt(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	first := w.extend(s.ID, `{"extend_by":600}`, key, "k1")
	same(t, first, w.extend(s.ID, `{"extend_by":600}`, key, "k1"))
	if other := w.extend(s.ID, `{"extend_by":60}`, key, "k2"); other.sandbox.ExpiresAt.Sub(*s.ExpiresAt) != 660*time.Second {
		t.Errorf("another key: %s", other.Body)
	}
	same(t, first, w.extend(s.ID, `{"extend_by":600}`, key, "k1"))
	if now := w.get(s.ID); now.ExpiresAt.Sub(*s.ExpiresAt) != 660*time.Second {
		t.Errorf("a repeat moved the end: %v after %v", now.ExpiresAt, s.ExpiresAt)
	}
}

func TestExtend_OfAnExpiredSandboxIsRejectedAndTheRejectionReplayed(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	w.expire(s.ID)
	first := w.extend(s.ID, `{"extend_by":600}`, key, "k1")
	first.want(t, 409, "sandbox_expired")
	if d := first.failure.Details; d["sandbox_id"] != s.ID || d["expires_at"] != w.get(s.ID).ExpiresAt.Format(time.RFC3339) {
		t.Errorf("details %v", d)
	}
	again := w.extend(s.ID, `{"extend_by":600}`, key, "k1")
	same(t, first, again)
	if again.Header.Get("X-Request-Id") != again.failure.RequestID || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("header %v", again.Header)
	}
	w.extend(s.ID, `{"extend_by":600}`).want(t, 409, "sandbox_expired")
	w.exec("UPDATE sandboxes_sandboxes SET expires_at = unixepoch() + 100")
	same(t, first, w.extend(s.ID, `{"extend_by":600}`, key, "k1"))
}

func TestExtend_OfAnUnlimitedSandboxIsRejected(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	w.extend(s.ID, `{"extend_by":600}`).want(t, 409, "sandbox_ttl_infinite")
	first := w.extend(s.ID, `{"extend_by":600}`, key, "k1")
	same(t, first, w.extend(s.ID, `{"extend_by":600}`, key, "k1"))
	if now := w.get(s.ID); now.ExpiresAt != nil {
		t.Errorf("expires at %v", now.ExpiresAt)
	}
}

func TestExtend_ByMustBeAPositiveIntegerUpToTheCap(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	for name, body := range map[string]string{
		"zero": `{"extend_by":0}`, "negative": `{"extend_by":-1}`, "fractional": `{"extend_by":0.5}`, "with a point": `{"extend_by":1.0}`,
		"with an exponent": `{"extend_by":1e2}`, "above the cap": `{"extend_by":86401}`, "above 64 bits": `{"extend_by":9223372036854775808}`,
		"huge": `{"extend_by":1e999}`, "missing": `{}`, "no body": ``, "null": `{"extend_by":null}`, "a string": `{"extend_by":"60"}`, "true": `{"extend_by":true}`,
	} {
		got := w.extend(s.ID, body, key, "k1")
		got.want(t, 400, "validation_error")
		if got.failure.Details["field"] != "extend_by" {
			t.Errorf("%s: details %v", name, got.failure.Details)
		}
	}
	if now := w.get(s.ID); !now.ExpiresAt.Equal(*s.ExpiresAt) {
		t.Errorf("the end moved to %v", now.ExpiresAt)
	}
	if got := w.extend(s.ID, `{"extend_by":86400}`, key, "k1"); got.Status != 200 {
		t.Errorf("the cap itself: %s", got.Body)
	}
}

func TestExtend_TakesNoTimeFromTheCaller(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	for _, name := range []string{"now", "expires_at"} {
		got := w.extend(s.ID, `{"extend_by":600,"`+name+`":"2099-01-01T00:00:00Z"}`, key, "k1")
		got.want(t, 400, "validation_error")
		if got.failure.Details["field"] != name {
			t.Errorf("details %v", got.failure.Details)
		}
	}
	got := w.extend(s.ID, `{"extend_by":600}`, key, "k1", "Date", "Thu, 01 Jan 2099 00:00:00 GMT")
	if got.Status != 200 || got.sandbox.ExpiresAt.Sub(*s.ExpiresAt) != 600*time.Second {
		t.Errorf("from %v to %s", s.ExpiresAt, got.Body)
	}
}

func TestExtend_LeavesTheSessionAlone(t *testing.T) {
	w := newWorld(t)
	id := w.create(`{"ttl":3600}`).ID
	if got := w.extend(id, `{"extend_by":60}`); got.sandbox.Status != "idle" || w.handle(id) != "" {
		t.Errorf("it started a session: %s", got.Body)
	}
	w.start(id)
	w.exec("UPDATE sandboxes_sandboxes SET idle_expires_at = unixepoch() + 100")
	before, handle := w.get(id), w.handle(id)
	got := w.extend(id, `{"extend_by":600}`)
	if got.Status != 200 || got.sandbox.Status != "ready" || !got.sandbox.IdleExpiresAt.Equal(*before.IdleExpiresAt) {
		t.Errorf("got %d %s, before %+v", got.Status, got.Body, before)
	}
	if now := w.handle(id); now != handle || !w.api.cfg.Runtime.Alive(handle) {
		t.Errorf("the session %q became %q", handle, now)
	}
}

func TestExtend_TheCapOfExtendByIsConfigurable(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxExtend = 10 })
	s := w.create(`{"ttl":3600}`)
	w.extend(s.ID, `{"extend_by":11}`).want(t, 400, "validation_error")
	if got := w.extend(s.ID, `{"extend_by":10}`); got.Status != 200 {
		t.Error(got.Body)
	}
}

func TestExtend_AnEndAfterTheYear9999IsRejected(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxExtend = 1<<63 - 1 })
	s := w.create(`{"ttl":3600}`)
	w.exec("UPDATE sandboxes_sandboxes SET expires_at = ?", lastSecond-5)
	w.extend(s.ID, `{"extend_by":6}`, key, "k1").want(t, 400, "validation_error")
	w.extend(s.ID, `{"extend_by":9223372036854775807}`).want(t, 400, "validation_error")
	if got := w.extend(s.ID, `{"extend_by":5}`); got.Status != 200 || got.sandbox.ExpiresAt.Format(time.RFC3339) != "9999-12-31T23:59:59Z" {
		t.Error(got.Body)
	}
}

func TestExtend_50ParallelExtendsWith50KeysAddUp(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	ends := make([]time.Time, 50)
	var wg sync.WaitGroup
	for i := range ends {
		wg.Go(func() {
			got := w.extend(s.ID, `{"extend_by":60}`, key, fmt.Sprint("k", i))
			if got.Status != 200 {
				t.Error(got.Body)
				return
			}
			ends[i] = *got.sandbox.ExpiresAt
		})
	}
	wg.Wait()
	if now := w.get(s.ID); now.ExpiresAt.Sub(*s.ExpiresAt) != 50*60*time.Second {
		t.Errorf("from %v to %v", s.ExpiresAt, now.ExpiresAt)
	}
	seen := map[time.Time]bool{}
	for _, end := range ends {
		seen[end] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d different responses", len(seen))
	}
}

func TestExtend_OfAnUnknownSandboxIsNotFound(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{newID(sandboxIDs), "nonsense", "sandbox-", "..%2f..%2fetc"} {
		w.extend(id, `{"extend_by":60}`, key, "k1").want(t, 404, "not_found")
	}
}
