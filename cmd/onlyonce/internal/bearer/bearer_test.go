package bearer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

var (
	rsaKey   = must(rsa.GenerateKey(rand.Reader, 2048))
	smallKey = must(rsa.GenerateKey(rand.Reader, 1024))
	ecKey    = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	edKey    = ed25519.NewKeyFromSeed(make([]byte, 32))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func public(key crypto.Signer, id, alg string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: alg, Use: "sig"}
}

func document(keys ...jose.JSONWebKey) []byte {
	return must(json.Marshal(jose.JSONWebKeySet{Keys: keys}))
}

var published = document(public(rsaKey, "rsa", ""), public(ecKey, "ec", "ES256"), public(edKey, "ed", "EdDSA"))

// claims are right.
func claims(change func(map[string]any)) map[string]any {
	c := map[string]any{
		"sub": "alice", "iss": "https://id/", "aud": []string{"other", "api"}, "org": "acme", "n": 7,
		"exp": time.Now().Add(time.Minute).Unix(),
	}
	if change != nil {
		change(c)
	}
	return c
}

func sign(key any, alg jose.SignatureAlgorithm, id string, c map[string]any) string {
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options))
	return must(jwt.Signed(signer).Claims(c).Serialize())
}

func fixed(text []byte) Source {
	return func(context.Context) ([]byte, error) { return text, nil }
}

func newVerifier(t *testing.T, source Source) (*Verifier, *cmdtest.Buffer) {
	t.Helper()
	var log cmdtest.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	keys, err := Read(t.Context(), source, 10*time.Minute, logger)
	if err != nil {
		t.Fatal(err)
	}
	return New(keys, Config{Claim: "org", Issuer: "https://id/", Audience: "api", Log: logger}), &log
}

func TestBearer_ATokenThatIsRightNamesItsTenant(t *testing.T) {
	v, log := newVerifier(t, fixed(published))
	for name, token := range map[string]string{
		"RSA":              sign(rsaKey, jose.RS256, "rsa", claims(nil)),
		"RSA-PSS":          sign(rsaKey, jose.PS512, "rsa", claims(nil)),
		"EC":               sign(ecKey, jose.ES256, "ec", claims(nil)),
		"Ed25519":          sign(edKey, jose.EdDSA, "ed", claims(nil)),
		"without a key id": sign(ecKey, jose.ES256, "", claims(nil)),
		"a slow clock":     sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["exp"] = time.Now().Add(-10 * time.Second).Unix() })),
	} {
		for _, scheme := range []string{"Bearer ", "bearer ", "Bearer  "} {
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("Authorization", scheme+token)
			if got := v.Tenant(r); got != "acme" {
				t.Errorf("%s: tenant %q; log: %s", name, got, log)
			}
		}
	}
}

func TestSecurity_ATokenThatIsNotRightNamesNobody(t *testing.T) {
	v, log := newVerifier(t, fixed(published))
	right := sign(ecKey, jose.ES256, "ec", claims(nil))
	head, rest, _ := strings.Cut(right, ".")
	payload, mac, _ := strings.Cut(rest, ".")
	encode := base64.RawURLEncoding.EncodeToString
	otherEC := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	modulus := rsaKey.N.Bytes()
	for name, token := range map[string]string{
		"nothing":                  "",
		"no token":                 "alice",
		"alg none":                 encode([]byte(`{"alg":"none"}`)) + "." + payload + ".",
		"alg None and a signature": encode([]byte(`{"alg":"None","kid":"ec"}`)) + "." + payload + "." + mac,
		"the public key as secret": sign(modulus, jose.HS256, "rsa", claims(nil)),
		"another's key":            sign(otherEC, jose.ES256, "ec", claims(nil)),
		"another's key, no id":     sign(otherEC, jose.ES256, "", claims(nil)),
		"another key's id":         sign(ecKey, jose.ES256, "rsa", claims(nil)),
		"a key nobody knows":       sign(ecKey, jose.ES256, "new", claims(nil)),
		"no signature":             head + "." + payload + ".",
		"other claims":             head + "." + encode([]byte(`{"org":"other","exp":9999999999}`)) + "." + mac,
		"in JSON":                  `{"payload":"` + payload + `","protected":"` + head + `","signature":"` + mac + `"}`,
		"expired":                  sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() })),
		"for ever":                 sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { delete(c, "exp") })),
		"not yet":                  sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["nbf"] = time.Now().Add(time.Hour).Unix() })),
		"another issuer":           sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["iss"] = "https://id" })),
		"no issuer":                sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { delete(c, "iss") })),
		"another audience":         sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["aud"] = "apis" })),
		"no claim":                 sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { delete(c, "org") })),
		"an empty claim":           sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["org"] = "" })),
		"a claim that is no text":  sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["org"] = 7 })),
		"too long":                 sign(ecKey, jose.ES256, "ec", claims(func(c map[string]any) { c["x"] = strings.Repeat("x", maxToken) })),
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		if got := v.Tenant(r); got != "" {
			t.Errorf("%s names %q", name, got)
		}
	}
	for name, header := range map[string][]string{
		"no header":   nil,
		"two headers": {"Bearer " + right, "Bearer " + right},
		"basic":       {"Basic " + right},
		"no scheme":   {right},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header["Authorization"] = header
		if got := v.Tenant(r); got != "" {
			t.Errorf("%s names %q", name, got)
		}
	}
	if n := strings.Count(log.String(), "a token was rejected"); n != 1 {
		t.Errorf("%d rejections are logged, want 1:\n%s", n, log)
	}
	if strings.Contains(log.String(), mac) {
		t.Error("a token is logged")
	}
}

// signBytes signs claims as they are written.
func signBytes(claims string) string {
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: ecKey}, (&jose.SignerOptions{}).WithHeader("kid", "ec")))
	return must(must(signer.Sign([]byte(claims))).CompactSerialize())
}

// JSON readers put U+FFFD in place of each of these, and would make one tenant of
// several.
func TestSecurity_ClaimsThatAreNotUnicodeNameNobody(t *testing.T) {
	v, _ := newVerifier(t, fixed(published))
	for _, org := range []string{`\ud800`, `\ud801`, `\udfff`, `acme\ud800`, "\xff", "\xfe", "acme\xc3", `\ufffd`, "\ufffd"} {
		token := signBytes(fmt.Sprintf(`{"iss":"https://id/","aud":"api","exp":%d,"org":"%s"}`, time.Now().Add(time.Minute).Unix(), org))
		if tenant, err := v.Verify(token); err == nil {
			t.Errorf("the claim %q names %q", org, tenant)
		}
	}
	token := signBytes(fmt.Sprintf(`{"iss":"https://id/","aud":"api","exp":%d,"org":"\ud83d\ude00"}`, time.Now().Add(time.Minute).Unix()))
	if tenant, err := v.Verify(token); err != nil || tenant != "\U0001f600" {
		t.Errorf("a pair of surrogates names %q, %v", tenant, err)
	}
}

// A publisher counts the reads of its document.
type publisher struct {
	doc   atomic.Pointer[[]byte] // nil: it does not respond
	reads atomic.Int32
}

func (p *publisher) read(context.Context) ([]byte, error) {
	p.reads.Add(1)
	if doc := p.doc.Load(); doc != nil {
		return *doc, nil
	}
	return nil, errors.New("the publisher is away")
}

func TestBearer_AnUnknownKeyIDReloadsTheKeysButNotForEveryInventedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{}
		first := document(public(ecKey, "ec", ""))
		p.doc.Store(&first)
		v, _ := newVerifier(t, p.read)
		p.doc.Store(&published)
		for range 100 {
			if _, err := v.Verify(sign(rsaKey, jose.RS256, "rsa", claims(nil))); err == nil {
				t.Fatal("the document was read again at once")
			}
		}
		time.Sleep(askAgain)
		if _, err := v.Verify(sign(rsaKey, jose.RS256, "rsa", claims(nil))); err != nil {
			t.Error(err)
		}
		for range 100 {
			_, _ = v.Verify(sign(rsaKey, jose.RS256, rand.Text(), claims(nil)))
		}
		if n := p.reads.Load(); n != 2 {
			t.Errorf("the document was read %d times", n)
		}
	})
}

func TestBearer_KeysAreReadAgainAndThoseThatWereTakenAwayAreNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{}
		p.doc.Store(&published)
		v, _ := newVerifier(t, p.read)
		go v.keys.Run(t.Context())
		rest := document(public(edKey, "ed", ""))
		p.doc.Store(&rest)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if _, err := v.Verify(sign(ecKey, jose.ES256, "ec", claims(nil))); err == nil {
			t.Error("a token of a key that was removed is accepted")
		}
		if _, err := v.Verify(sign(edKey, jose.EdDSA, "ed", claims(nil))); err != nil {
			t.Error(err)
		}
	})
}

func TestBearer_WhenTheKeysCannotBeReadForTooLongNoTokenIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{}
		p.doc.Store(&published)
		v, log := newVerifier(t, p.read)
		go v.keys.Run(t.Context())
		verify := func() error {
			_, err := v.Verify(sign(ecKey, jose.ES256, "ec", claims(nil)))
			return err
		}
		p.doc.Store(nil)
		time.Sleep(69 * time.Minute)
		synctest.Wait()
		if err := verify(); err != nil {
			t.Errorf("after 69 minutes: %v", err)
		}
		if !strings.Contains(log.String(), "the publisher is away") {
			t.Errorf("log: %s", log)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if err := verify(); err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("after 71 minutes: %v", err)
		}
		p.doc.Store(&published)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if err := verify(); err != nil {
			t.Errorf("after they could be read again: %v", err)
		}
	})
}

func TestBearer_AFailedReloadIsRepeatedBeforeTheKeysAreNoLongerBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{}
		p.doc.Store(&published)
		const refresh = 24 * time.Hour
		keys, err := Read(t.Context(), p.read, refresh, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		v := New(keys, Config{Claim: "org", Issuer: "https://id/", Audience: "api", Log: slog.New(slog.DiscardHandler)})
		go keys.Run(t.Context())
		p.doc.Store(nil)
		time.Sleep(refresh + time.Minute)
		synctest.Wait()
		p.doc.Store(&published)
		time.Sleep(grace)
		synctest.Wait()
		if _, err := v.Verify(sign(ecKey, jose.ES256, "ec", claims(nil))); err != nil {
			t.Errorf("an hour after the publisher came back: %v", err)
		}
		p.reads.Store(0)
		time.Sleep(refresh - 2*grace)
		if n := p.reads.Load(); n != 0 {
			t.Errorf("after a reading that succeeded, %d more came in the next 22 hours", n)
		}
	})
}

func TestBearer_OnlyPublicKeysForSignaturesAreTaken(t *testing.T) {
	encryption := public(ecKey, "enc", "")
	encryption.Use = "enc"
	keys, err := parseKeys([]byte(`{"keys":[{"kty":"NEW"},7,` + string(must(json.Marshal(public(smallKey, "small", "")))) + "," +
		string(must(json.Marshal(encryption))) + "," + string(must(json.Marshal(public(ecKey, "ec", "")))) + "]}"))
	if err != nil || len(keys) != 1 || keys[0].KeyID != "ec" {
		t.Errorf("%+v, %v", keys, err)
	}
	for name, text := range map[string][]byte{
		"no JSON":          []byte("<html>"),
		"no keys":          []byte("{}"),
		"nothing of use":   document(public(smallKey, "small", "")),
		"a private key":    document(jose.JSONWebKey{Key: ecKey, KeyID: "ec"}, public(rsaKey, "rsa", "")),
		"a shared secret":  document(jose.JSONWebKey{Key: []byte("secret"), KeyID: "s"}, public(rsaKey, "rsa", "")),
		"an empty set":     []byte(`{"keys":[]}`),
		"a key by mistake": []byte(`{"keys":{}}`),
	} {
		if keys, err := parseKeys(text); err == nil {
			t.Errorf("%s: %+v", name, keys)
		}
	}
}

func TestBearer_ADocumentIsReadFromAFileOrAServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, published, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := File(path)(t.Context()); err != nil || !bytes.Equal(text, published) {
		t.Errorf("%s, %v", text, err)
	}
	if err := os.WriteFile(path, make([]byte, maxDocument+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := File(path)(t.Context()); err == nil {
		t.Error("a document that is too long is taken")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(published) })
	mux.Handle("/moved", http.RedirectHandler("/keys", http.StatusFound))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	roots := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if text, err := URL(srv.URL+"/keys", roots)(t.Context()); err != nil || !bytes.Equal(text, published) {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := URL(srv.URL+"/moved", roots)(t.Context()); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("a redirect: %v", err)
	}
	if _, err := URL(srv.URL+"/keys", nil)(t.Context()); err == nil {
		t.Error("a certificate that nobody knows is taken")
	}
}
