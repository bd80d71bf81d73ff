package sandboxes

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func TestCreate_ACreateReturnsTheSandbox(t *testing.T) {
	w := newWorld(t)
	got := w.send("POST", "/v1/sandboxes", `{"profile":"python-default","workspace_id":null,"ttl":3600}`)
	s := got.sandbox
	if got.Status != http.StatusCreated || s.Status != "idle" || s.Profile != "python-default" || s.IdleExpiresAt != nil {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if !isID(sandboxIDs, s.ID) || !isID(workspaceIDs, s.WorkspaceID) {
		t.Errorf("the ids %q and %q are not a prefix and a ULID", s.ID, s.WorkspaceID)
	}
	if strings.Join(s.Capabilities, " ") != "filesystem shell python" {
		t.Errorf("capabilities %v", s.Capabilities)
	}
	if s.ExpiresAt == nil || s.ExpiresAt.Sub(s.CreatedAt) != time.Hour {
		t.Errorf("created at %v, expires at %v", s.CreatedAt, s.ExpiresAt)
	}
	want := fmt.Sprintf(`{"id":"%s","status":"idle","profile":"python-default","workspace_id":"%s","capabilities":["filesystem","shell","python"],"created_at":"%s","expires_at":"%s","idle_expires_at":null}`,
		s.ID, s.WorkspaceID, s.CreatedAt.Format("2006-01-02T15:04:05Z"), s.ExpiresAt.Format("2006-01-02T15:04:05Z"))
	if got.Body != want {
		t.Errorf("got  %s\nwant %s", got.Body, want)
	}
	if again := w.send("GET", "/v1/sandboxes/"+s.ID, ""); again.Status != 200 || again.Body != got.Body {
		t.Errorf("read back: %d %s", again.Status, again.Body)
	}
}

func TestCreate_EveryMemberOfACreateIsOptional(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{"", "{}", `{"profile":null,"workspace_id":null,"ttl":null}`, `{"ttl":0}`} {
		if s := w.create(body); s.ExpiresAt != nil || s.Profile != defaultProfile {
			t.Errorf("%q made %+v", body, s)
		}
	}
}

func TestCreate_TwiceWithOneKeyGivesOneSandboxAndEqualResponses(t *testing.T) {
	w := newWorld(t)
	body := `{"ttl":3600}`
	first := w.send("POST", "/v1/sandboxes", body, key, "k1")
	second := w.send("POST", "/v1/sandboxes", body, key, "k1")
	same(t, first, second)
	if first.Status != 201 || first.Header.Get("Idempotency-Replayed") != "" || second.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("first %d %v, second %v", first.Status, first.Header, second.Header)
	}
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	if n := w.count("SELECT count(*) FROM onlyonce_records WHERE result_ref = ?", first.sandbox.ID); n != 1 {
		t.Errorf("%d records name the sandbox", n)
	}
}

func TestCreate_ADifferentBodyConflicts(t *testing.T) {
	w := newWorld(t)
	w.create(`{"ttl":3600}`, key, "k1")
	w.send("POST", "/v1/sandboxes", `{"ttl":3601}`, key, "k1").want(t, 409, "conflict")
	w.send("POST", "/v1/sandboxes", "", key, "k1").want(t, 409, "conflict")
}

func TestCreate_ADifferentPathConflicts(t *testing.T) {
	w := newWorld(t)
	one, other := w.create(`{"ttl":3600}`), w.create(`{"ttl":3600}`)
	if got := w.send("POST", at(one.ID, "extend_ttl"), `{"extend_by":60}`, key, "k1"); got.Status != 200 {
		t.Fatal(got.Body)
	}
	w.send("POST", at(other.ID, "extend_ttl"), `{"extend_by":60}`, key, "k1").want(t, 409, "conflict")
	w.send("POST", "/v1/sandboxes", `{}`, key, "k1").want(t, 409, "conflict")
}

func TestCreate_AnExpiredKeyIsNew(t *testing.T) {
	w := newWorld(t)
	first := w.create(`{}`, key, "k1")
	w.exec("UPDATE onlyonce_records SET expires_at = 1")
	second := w.create(`{}`, key, "k1")
	if first.ID == second.ID {
		t.Error("the response of the expired key came back")
	}
	if n := w.count("SELECT count(*) FROM onlyonce_records"); n != 1 {
		t.Errorf("%d records: the expired one was to be dropped", n)
	}
}

func TestCreate_TheKeysTimeToLiveIsConfigurable(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Keep = 90 * time.Second })
	w.create(`{}`, key, "k1")
	if n := w.count("SELECT (expires_at - settled_at) / 1000000 FROM onlyonce_records"); n != 90 {
		t.Errorf("a key is kept for %d s", n)
	}
	w = newWorld(t)
	w.create(`{}`, key, "k1")
	if n := w.count("SELECT (expires_at - settled_at) / 1000000 FROM onlyonce_records"); n != 24*3600 {
		t.Errorf("by default, a key is kept for %d s", n)
	}
}

func TestCreate_64ParallelCreatesWithOneKeyGiveOneSandbox(t *testing.T) {
	w := newWorld(t)
	replies := make([]reply, 64)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = w.send("POST", "/v1/sandboxes", `{"ttl":60}`, key, "k1") })
	}
	wg.Wait()
	for _, r := range replies {
		same(t, replies[0], r)
	}
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 1 || replies[0].Status != 201 {
		t.Errorf("%d sandboxes, answer %s", n, replies[0].Body)
	}
}

func TestCreate_ABodyThatIsNotValidInItselfIsRejectedAndLeavesTheKeyUnused(t *testing.T) {
	w := newWorld(t)
	for body, field := range map[string]string{
		`{"profile":"no-such"}`:           "profile",
		`{"profile":7}`:                   "profile",
		`{"ttl":-1}`:                      "ttl",
		`{"ttl":1.5}`:                     "ttl",
		`{"ttl":"60"}`:                    "ttl",
		`{"ttl":99999999999}`:             "ttl",
		`{"ttl":1e400}`:                   "ttl",
		`{"ttl":99999999999999999999999}`: "ttl",
		`{"workspace_id":"../../etc"}`:    "workspace_id",
		`{"workspace_id":["ws-01ARZ3NDEKTSV4RRFFQ69G5FAV"]}`: "workspace_id",
		`{"ttl":1,"ttl":2}`:      "ttl",
		`{"TTL":1}`:              "TTL",
		`{"ttl_seconds":1}`:      "ttl_seconds",
		`[]`:                     "",
		`{"ttl":1} {}`:           "",
		`{"profile":"\ud800"}`:   "",
		"{\"profile\":\"\xff\"}": "",
		`{`:                      "",
		`{"ttl":}`:               "",
		`null`:                   "",
		"\ufeff{}":               "",
		`{"profile":"` + strings.Repeat("x", maxBody-14) + `"}`: "profile",
	} {
		got := w.send("POST", "/v1/sandboxes", body, key, "k1")
		got.want(t, 400, "validation_error")
		if name, _ := got.failure.Details["field"].(string); name != field {
			t.Errorf("%.60s: details %v, want the field %q", body, got.failure.Details, field)
		}
	}
	w.send("POST", "/v1/sandboxes", `{"profile":"`+strings.Repeat("x", maxBody)+`"}`, key, "k1").want(t, 413, "body_too_large")
	w.send("POST", "/v1/sandboxes", `{}`, "Content-Type", "text/plain").want(t, 400, "validation_error")
	w.create(`{}`, key, "k1")
}

func TestCreate_ABodyWithAContentEncodingIsRejected(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	for _, path := range []string{"/v1/sandboxes", at(s.ID, "extend_ttl")} {
		for _, coding := range []string{"gzip", "br", "GZIP", "identity, gzip", "x"} {
			got := w.send("POST", path, `{}`, key, "k1", "Content-Encoding", coding)
			got.want(t, 415, "content_encoding_unsupported")
			if accepted := got.Header.Get("Accept-Encoding"); accepted != "identity" || !strings.Contains(got.failure.Message, "Content-Encoding") {
				t.Errorf("%s: Accept-Encoding is %q in %s", coding, accepted, got.Body)
			}
		}
	}
	w.create(`{}`, key, "k1", "Content-Encoding", "identity")
	w.send("POST", "/v1/sandboxes", `{}`, key, "k1", "Content-Encoding", "gzip").want(t, 415, "content_encoding_unsupported") // nor is it replayed
}

func TestCreate_ASandboxMayShareTheWorkspaceOfAnotherOfItsOwner(t *testing.T) {
	w := newWorld(t)
	a := w.create(`{}`, "X-Owner", "ada")
	b := w.create(`{"workspace_id":"`+a.WorkspaceID+`"}`, "X-Owner", "ada", key, "k")
	if b.WorkspaceID != a.WorkspaceID || b.ID == a.ID {
		t.Errorf("made %+v beside %+v", b, a)
	}
	got := w.send("POST", "/v1/sandboxes", `{"workspace_id":"`+a.WorkspaceID+`"}`, "X-Owner", "bob", key, "k")
	got.want(t, 400, "validation_error")
	again := w.send("POST", "/v1/sandboxes", `{"workspace_id":"`+a.WorkspaceID+`"}`, "X-Owner", "bob", key, "k")
	same(t, got, again)
}

func TestCreate_AMalformedKeyIsRejected(t *testing.T) {
	w := newWorld(t)
	for _, k := range []string{"", " ", "a b", "ä", `"k"`, "k/1", strings.Repeat("k", 129)} {
		got := w.send("POST", "/v1/sandboxes", `{}`, key, k)
		got.want(t, 400, "validation_error")
		if got.failure.Details["field"] != key {
			t.Errorf("key %q: details %v", k, got.failure.Details)
		}
	}
	w.send("POST", "/v1/sandboxes", `{}`, key, "a", key, "b").want(t, 400, "validation_error")
	w.create(`{}`, key, strings.Repeat("k", 128))
	w.create(`{}`, key, "azAZ09_-")
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 2 {
		t.Errorf("%d sandboxes", n)
	}
}

func TestCreate_ATruncatedBodyIsTheCallersFault(t *testing.T) {
	w := newWorld(t)
	id := w.create(`{"ttl":60}`).ID
	for _, how := range apitest.Breaks {
		for _, path := range []string{"/v1/sandboxes", at(id, "extend_ttl")} {
			for _, header := range []string{"", key + ": k1\r\n"} {
				resp, body := apitest.PostPart(t, w.api, path, how, header)
				got := newReply(t, resp.StatusCode, resp.Header, body)
				got.want(t, 400, "validation_error")
				if got.failure.Message != "the body is incomplete" {
					t.Errorf("%s %s: %s", how, path, got.Body)
				}
			}
		}
	}
	if n := w.count("SELECT (SELECT count(*) FROM sandboxes_sandboxes) + (SELECT count(*) FROM onlyonce_records)"); n != 1 {
		t.Errorf("something ran: %d rows", n)
	}
}

// Without a key, a repeat would make a second sandbox, and nobody could find out about the first.
func TestCreate_AfterACommitInDoubtOnlyACallWithAKeyIsToBeSentAgain(t *testing.T) {
	w := newWorld(t)
	ended := w.create(`{"ttl":3600}`)
	sound := w.api.guard
	defer func() { w.api.guard = sound }()
	w.api.guard = onlyonce.NewTx[*sql.Tx](&apitest.Broken{Store: w.store, Err: onlyonce.ErrInDoubt}, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	for path, body := range map[string]string{"/v1/sandboxes": "{}", at(ended.ID, "extend_ttl"): `{"extend_by":60}`} {
		got := w.send("POST", path, body)
		if got.want(t, 500, "outcome_unknown"); got.Header.Get("Retry-After") != "" {
			t.Errorf("%s: a repeat is advised: %v", path, got.Header)
		}
		keyed := w.send("POST", path, body, key, "k"+path[len(path)-3:])
		if keyed.want(t, 503, "unavailable"); keyed.Header.Get("Retry-After") == "" {
			t.Errorf("%s with a key: %v", path, keyed.Header)
		}
	}
}
