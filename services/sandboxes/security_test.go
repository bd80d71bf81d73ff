package sandboxes

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// The rows are those of the project's list of attacks.

func TestSecurity_TwoOwnersWithTheSameKeyAndBodyGetTwoSandboxes(t *testing.T) {
	w := newWorld(t)
	seen := map[string]string{}
	for _, call := range [][2]string{{"a", "b-c"}, {"a-b", "c"}, {"ab", "c"}, {"a", "bc"}, {"A", "bc"}, {"a.b", "c"}} {
		s := w.create(`{"ttl":60}`, "X-Owner", call[0], key, call[1])
		if other, twice := seen[s.ID]; twice {
			t.Errorf("%v got the sandbox of %s", call, other)
		}
		seen[s.ID] = strings.Join(call[:], " ")
	}
}

func TestSecurity_ATokensOwnerCanNotBeNamedByAnAnonymousCaller(t *testing.T) {
	w := newWorld(t, withTokens(t, true))
	first := w.send("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer ada-secret", key, "k1")
	w.send("POST", "/v1/sandboxes", `{}`, "X-Owner", "ada", key, "k1").want(t, 401, "unauthorized")
	if got := w.send("GET", "/v1/sandboxes/"+first.sandbox.ID, ""); got.Status != 404 {
		t.Error(got.Body)
	}
}

func TestSecurity_AReplayNeedsATokenThatIsStillGood(t *testing.T) {
	w := newWorld(t, withTokens(t, false))
	if got := w.send("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer bob-other", key, "k1"); got.Status != 201 {
		t.Fatal(got.Body)
	}
	left, err := ParseTokens(strings.NewReader("ada " + hashOf("ada-secret")))
	if err != nil {
		t.Fatal(err)
	}
	w.api.cfg.Tokens = left
	w.send("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer bob-other", key, "k1").want(t, 401, "unauthorized")
}

func TestSecurity_ARejectedRequestDoesNotTakeAKey(t *testing.T) {
	w := newWorld(t, withTokens(t, false))
	w.send("POST", "/v1/sandboxes", `{}`, key, "k1").want(t, 401, "unauthorized")
	w.send("POST", "/v1/sandboxes", `{"ttl":-1}`, "Authorization", "Bearer ada-secret", key, "k1").want(t, 400, "validation_error")
	w.send("POST", "/v1/sandboxes", `{`, "Authorization", "Bearer ada-secret", key, "k1").want(t, 400, "validation_error")
	if n := w.count("SELECT count(*) FROM onlyonce_records"); n != 0 {
		t.Errorf("%d records", n)
	}
	w.create(`{}`, "Authorization", "Bearer ada-secret", key, "k1")
}

func TestSecurity_BodiesThatReadersMayUnderstandDifferentlyAreRejected(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{`{"ttl":60,"ttl":0}`, `{"ttl":60,"TTL":0}`, `{"ttl":60,"\u0074tl":0}`, "{\"profile\":\"python-default\xff\"}", `{"profile":"\udc00"}`, `{"ttl":1e400}`, `{"ttl":60}{}`} {
		w.send("POST", "/v1/sandboxes", body).want(t, 400, "validation_error")
	}
	w.create(`{"ttl":60}`, key, "k1")
	w.send("POST", "/v1/sandboxes", `{"ttl":60,"profile":"Python-default"}`, key, "k1").want(t, 400, "validation_error")
	w.send("POST", "/v1/sandboxes", `{"ttl":61}`, key, "k1").want(t, 409, "conflict")
}

func TestSecurity_ABodyWithoutEndIsCutOff(t *testing.T) {
	w := newWorld(t)
	endless := strings.Repeat(" ", maxBody) + `{}`
	w.send("POST", "/v1/sandboxes", endless, key, "k1").want(t, 413, "body_too_large")
	w.create(`{}`, key, "k1")
}

func TestSecurity_KeysAndTokensAreNotLoggedAndLinesCanNotBeForged(t *testing.T) {
	w := newWorld(t, withTokens(t, true))
	w.create(`{}`, "Authorization", "Bearer ada-secret", key, "customer-4711")
	w.send("POST", "/v1/sandboxes", `{"ttl":1}`, "Authorization", "Bearer ada-secret", key, "customer-4711")
	w.exec("ALTER TABLE sandboxes_sandboxes RENAME TO elsewhere")
	w.send("GET", "/v1/sandboxes/"+newID(sandboxIDs), "", "X-Request-Id", "x\nforged")
	w.send("POST", "/v1/sandboxes", `{}`, key, "customer-4712")
	log := w.log.String()
	for _, secret := range []string{"customer-471", "ada-secret", hashOf("ada-secret")} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q:\n%s", secret, log)
		}
	}
	for line := range strings.Lines(log) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log has the line %q", line)
		}
	}
	if !strings.Contains(log, "idempotency_conflict") {
		t.Errorf("the log has no conflict:\n%s", log)
	}
	w.exec("ALTER TABLE elsewhere RENAME TO sandboxes_sandboxes")
}

func TestSecurity_APageOfAnotherOriginCanNotWrite(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://example.org"}} {
		for _, call := range [][2]string{
			{"POST", "/v1/sandboxes"}, {"POST", at(s.ID, "start")}, {"POST", at(s.ID, "extend_ttl")}, {"DELETE", "/v1/sandboxes/" + s.ID},
		} {
			got := w.send(call[0], call[1], "", append(header, "X-Request-Id", "mine", key, "k1")...)
			got.want(t, 403, "forbidden")
			if got.failure.RequestID != "mine" || got.Header.Get("X-Request-Id") != "mine" || got.failure.Details == nil {
				t.Errorf("%v %s", got.Header, got.Body)
			}
		}
	}
	if now := w.get(s.ID); now.Status != "idle" || w.count("SELECT count(*) FROM onlyonce_records") != 0 {
		t.Errorf("something ran: %+v", now)
	}
	w.create(`{}`, key, "k1", "Sec-Fetch-Site", "same-origin")
}

func TestSecurity_AllThatCallersSayIsBoundNotPasted(t *testing.T) {
	w := newWorld(t)
	w.create(`{}`)
	for _, evil := range []string{`x' OR '1'='1`, `x"; DROP TABLE sandboxes_sandboxes; --`} {
		encoded, _ := json.Marshal(evil)
		w.send("POST", "/v1/sandboxes", `{"profile":`+string(encoded)+`}`).want(t, 400, "validation_error")
		w.send("POST", "/v1/sandboxes", `{"workspace_id":`+string(encoded)+`}`).want(t, 400, "validation_error")
	}
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
}

func TestSecurity_AConflictNeverEchoesTheFirstResponse(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`, key, "k1")
	got := w.send("POST", "/v1/sandboxes", `{"ttl":60}`, key, "k1", "X-Request-Id", "mine") // a made ID could have a part by chance
	got.want(t, 409, "conflict")
	for _, part := range []string{s.ID, s.WorkspaceID, s.ExpiresAt.Format("2006-01-02T15:04:05"), "3600", "k1"} {
		if strings.Contains(got.Body, part) {
			t.Errorf("the conflict tells %q: %s", part, got.Body)
		}
	}
	if len(got.failure.Details) != 0 {
		t.Errorf("details %v", got.failure.Details)
	}
}

func TestSecurity_NoWorkspaceIsOutsideItsDirectory(t *testing.T) {
	w := newWorld(t)
	outside := filepath.Join(w.dir, "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	s := w.create(`{}`)
	w.exec("UPDATE sandboxes_sandboxes SET workspace_id = '../outside'") // as if an id had slipped through
	w.send("POST", at(s.ID, "start"), "").want(t, 500, "internal_error")
	w.send("DELETE", "/v1/sandboxes/"+s.ID, "").want(t, 500, "internal_error")
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	w.exec("DELETE FROM sandboxes_sandboxes")
}

func TestSecurity_SessionsOfAnOwnerAreLimited(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("eve " + hashOf("eve-secret") + "\nada " + hashOf("ada-secret")))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *Config) { c.MaxSessions, c.Tokens = 2, tokens })
	var ids []string
	for range 3 {
		ids = append(ids, w.create(`{}`, "Authorization", "Bearer eve-secret").ID)
	}
	start := func(owner, id string) reply {
		return w.send("POST", at(id, "start"), "", "Authorization", "Bearer "+owner+"-secret")
	}
	for range 2 { // a repeat counts once
		for _, id := range ids[:2] {
			if got := start("eve", id); got.Status != 200 {
				t.Errorf("start responded with %d %s", got.Status, got.Body)
			}
		}
	}
	for range 2 {
		start("eve", ids[2]).want(t, 429, "too_many_sessions")
	}
	if got := start("ada", w.create(`{}`, "Authorization", "Bearer ada-secret").ID); got.Status != 200 {
		t.Errorf("another owner's start responded with %d %s", got.Status, got.Body)
	}
	w.send("POST", at(ids[0], "stop"), "", "Authorization", "Bearer eve-secret")
	if got := start("eve", ids[2]); got.Status != 200 {
		t.Errorf("after a stop, start responded with %d %s", got.Status, got.Body)
	}
}

func TestSecurity_ACallerThatInventsOwnersStartsNoMoreSessions(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("ada " + hashOf("ada-secret")))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *Config) { c.MaxSessions, c.Tokens = 2, tokens })
	start := func(header ...string) reply {
		return w.send("POST", at(w.create(`{}`, header...).ID, "start"), "", header...)
	}
	for _, owner := range []string{"eve", "mallory"} {
		if got := start("X-Owner", owner); got.Status != 200 {
			t.Errorf("the start of %s responded with %d %s", owner, got.Status, got.Body)
		}
	}
	start("X-Owner", "trudy").want(t, 429, "too_many_sessions")
	start().want(t, 429, "too_many_sessions")
	for range 2 {
		if got := start("Authorization", "Bearer ada-secret"); got.Status != 200 {
			t.Errorf("the start of an owner with a token responded with %d %s", got.Status, got.Body)
		}
	}
}

func TestSecurity_ACallerWithTooManyRequestsGetsARetryTime(t *testing.T) {
	w := newWorld(t)
	rec := httptest.NewRecorder()
	w.api.reject(rec, httptest.NewRequest("GET", "/v1/sandboxes", nil), serving.ErrTooManyRequests)
	newReply(t, rec.Code, rec.Header(), rec.Body.Bytes()).want(t, 429, "too_many_requests")
	if rec.Header().Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", rec.Header().Get("Retry-After"))
	}
}

func TestSecurity_AnOwnerThatHasStoredTooMuchGetsARetryTime(t *testing.T) {
	w := newWorld(t)
	w.api.limiter = httponce.NewLimiter(w.api.guard.Guard, httponce.Config{MaxTenantStored: 1})
	w.create(`{}`, key, "k1")
	got := w.send("POST", "/v1/sandboxes", `{}`, key, "k2")
	got.want(t, 429, "too_many_requests")
	if got.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	w.create(`{}`, key, "k2", "X-Owner", "other")
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 2 {
		t.Errorf("%d sandboxes", n)
	}
}
