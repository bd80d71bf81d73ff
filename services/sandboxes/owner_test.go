package sandboxes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// withTokens gives ada the token ada-secret, and bob two.
func withTokens(t *testing.T, anonymous bool) func(*Config) {
	tokens, err := ParseTokens(strings.NewReader("# owner hash\n\nada " + hashOf("ada-secret") + "\nbob\t" +
		strings.ToUpper(hashOf("bob-secret")) + "\r\n  bob " + hashOf("bob-other") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Tokens, c.AllowAnonymous = tokens, anonymous }
}

func TestOwner_ATokenNamesItsOwner(t *testing.T) {
	w := newWorld(t, withTokens(t, false))
	s := w.create(`{}`, "Authorization", "Bearer bob-secret", "X-Owner", "ada")
	for auth, status := range map[string]int{"Bearer bob-secret": 200, "bearer  bob-other": 200, "Bearer ada-secret": 404} {
		if got := w.send("GET", "/v1/sandboxes/"+s.ID, "", "Authorization", auth); got.Status != status {
			t.Errorf("%s: %d %s", auth, got.Status, got.Body)
		}
	}
}

func TestOwner_WithoutAValidTokenTheResponseIsUnauthorized(t *testing.T) {
	closed, demo := newWorld(t, withTokens(t, false)), newWorld(t, withTokens(t, true))
	for _, w := range []*world{closed, demo} {
		for _, header := range [][]string{
			{"Authorization", "Bearer nobody"},
			{"Authorization", "Bearer " + hashOf("ada-secret")},
			{"Authorization", "Bearer "},
			{"Authorization", ""},
			{"Authorization", "Basic ada-secret"},
			{"Authorization", "Bearer ada-secret", "Authorization", "Bearer bob-secret"},
			{"X-Owner", "ada"},
		} {
			for _, call := range [][2]string{{"POST", "/v1/sandboxes"}, {"GET", "/v1/sandboxes"}, {"DELETE", "/v1/sandboxes/" + newID(sandboxIDs)}} {
				got := w.send(call[0], call[1], "", header...)
				got.want(t, 401, "unauthorized")
				if got.Header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("header %v", got.Header)
				}
			}
		}
	}
	closed.send("GET", "/v1/sandboxes", "").want(t, 401, "unauthorized")
	closed.send("GET", "/v1/sandboxes", "", "X-Owner", "carol").want(t, 401, "unauthorized")
}

func TestOwner_ACallerWithoutANameIsNotTheOwnerOfAToken(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("anonymous " + hashOf("secret")))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *Config) { c.Tokens = tokens })
	w.create(`{}`, "Authorization", "Bearer secret")
	w.send("GET", "/v1/sandboxes", "").want(t, 401, "unauthorized")
}

func TestOwner_AnAnonymousCallerMayNameItself(t *testing.T) {
	w := newWorld(t, withTokens(t, true))
	nobody, carol := w.create(`{}`), w.create(`{}`, "X-Owner", "carol@example.org")
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes WHERE owner = 'anonymous' AND id = ?", nobody.ID); n != 1 {
		t.Error("a caller without a name is not anonymous")
	}
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes WHERE owner = 'carol@example.org' AND id = ?", carol.ID); n != 1 {
		t.Error("the name was not taken")
	}
	for _, header := range [][]string{
		{"X-Owner", ""},
		{"X-Owner", "a b"},
		{"X-Owner", "ä"},
		{"X-Owner", strings.Repeat("a", 129)},
		{"X-Owner", "carol", "X-Owner", "dave"},
	} {
		got := w.send("GET", "/v1/sandboxes", "", header...)
		got.want(t, 400, "validation_error")
		if got.failure.Details["field"] != "X-Owner" {
			t.Errorf("details %v", got.failure.Details)
		}
	}
}

func TestOwner_OwnersDoNotSeeEachOthersKeys(t *testing.T) {
	w := newWorld(t)
	a := w.create(`{"ttl":60}`, "X-Owner", "ada", key, "k1")
	b := w.create(`{"ttl":60}`, "X-Owner", "bob", key, "k1")
	c := w.create(`{"ttl":61}`, "X-Owner", "carol", key, "k1")
	if a.ID == b.ID || b.ID == c.ID {
		t.Error("one owner got another's response")
	}
}

func TestOwner_AnotherOwnersSandboxIsNotFound(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`, "X-Owner", "ada")
	none := newID(sandboxIDs)
	for _, call := range [][3]string{
		{"GET", "", ""}, {"DELETE", "", ""}, {"POST", "/start", ""}, {"POST", "/stop", ""}, {"POST", "/keepalive", ""}, {"POST", "/extend_ttl", `{"extend_by":60}`},
	} {
		others := w.send(call[0], "/v1/sandboxes/"+s.ID+call[1], call[2], "X-Owner", "bob", "X-Request-Id", "r")
		others.want(t, 404, "not_found")
		same(t, others, w.send(call[0], "/v1/sandboxes/"+none+call[1], call[2], "X-Owner", "bob", "X-Request-Id", "r"))
	}
	if got := w.send("GET", "/v1/sandboxes", "", "X-Owner", "bob"); got.Body != `{"items":[],"next_cursor":null}` {
		t.Error(got.Body)
	}
	if got := w.send("GET", "/v1/sandboxes/"+s.ID, "", "X-Owner", "ada"); got.sandbox.Status != "idle" || !got.sandbox.ExpiresAt.Equal(*s.ExpiresAt) {
		t.Error(got.Body)
	}
}

func TestOwner_OnlyHashesOfTokensAreKept(t *testing.T) {
	w := newWorld(t, withTokens(t, false))
	for _, auth := range []string{"Bearer ada-secret", "Bearer bob-other"} {
		w.create(`{}`, "Authorization", auth, key, "k1")
	}
	kept := fmt.Sprintf("%s %[1]v", w.api.cfg.Tokens)
	for _, secret := range []string{"ada-secret", "bob-other", strings.Trim(fmt.Sprint([]byte("ada-secret")), "[]")} {
		if strings.Contains(kept, secret) {
			t.Errorf("%q is kept", secret)
		}
	}
	if hash := sha256.Sum256([]byte("ada-secret")); !strings.Contains(kept, fmt.Sprint(hash)) {
		t.Error("the hash is not kept")
	}
}

func TestOwner_ATokenListThatIsNotRightIsRejectedByItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"ada":                              "line 1: 1 fields",
		"#\nada " + hashOf("a") + " extra": "line 2: 3 fields",
		"ada 00ff":                         "line 1: the hash",
		"ada " + hashOf("a")[:63] + "g":    "line 1: the hash",
		"a/b " + hashOf("a"):               "line 1: the owner",
		"ada " + hashOf("a") + "\nbob " + hashOf("a"): "line 2: this token",
		strings.Repeat("x", 1<<17):                    "too long",
		"ada " + hashOf(""):                           "line 1: this is the hash of an empty token",
	} {
		if _, err := ParseTokens(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
