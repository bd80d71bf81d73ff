package console

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestConsole_AConfigurationThatCannotBeUsedIsAnError(t *testing.T) {
	store := memstore.New(memstore.Config{})
	token := Token{Name: "ada", Role: Writer, Hash: sha256.Sum256([]byte(adasToken))}
	for name, cfg := range map[string]Config{
		"no token":        {Store: store},
		"no store":        {Tokens: []Token{token}},
		"an empty token":  {Store: store, Tokens: []Token{{Name: "ada", Role: Reader, Hash: sha256.Sum256(nil)}}},
		"no hash":         {Store: store, Tokens: []Token{{Name: "ada", Role: Reader}}},
		"no role":         {Store: store, Tokens: []Token{{Name: "ada", Hash: token.Hash}}},
		"no name":         {Store: store, Tokens: []Token{{Role: Reader, Hash: token.Hash}}},
		"a token twice":   {Store: store, Tokens: []Token{token, {Name: "bob", Role: Reader, Hash: token.Hash}}},
		"a path":          {Store: store, Tokens: []Token{token}, Path: "/console"},
		"another path":    {Store: store, Tokens: []Token{token}, Path: "//console/"},
		"a path with {":   {Store: store, Tokens: []Token{token}, Path: "/{a}/"},
		"a rule, no name": {Store: store, Tokens: []Token{token}, Redact: []string{"-"}},
	} {
		if h, err := New(cfg); err == nil || h != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConsole_TokensAreReadFromLinesWithTheirHashes(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	list, err := ParseTokens(strings.NewReader("# people\n\nada writer " + hash + "\n bob\treader " + strings.Repeat("cd", 32) + " \n"))
	if err != nil || len(list) != 2 || list[0].Name != "ada" || list[0].Role != Writer || list[1].Role != Reader || list[0].Hash[0] != 0xab {
		t.Errorf("%v, %v", list, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "two fields": "ada writer", "a role": "ada admin " + hash, "a token": "ada writer my-secret-token", "a name": "a/b writer " + hash,
		"twice": "ada writer " + hash + "\nbob reader " + hash, "the hash of nothing": "ada reader e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	} {
		if _, err := ParseTokens(strings.NewReader(text)); err == nil || strings.Contains(err.Error(), "my-secret-token") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecurity_EveryResponseForbidsScriptsOfOthersAndCopies(t *testing.T) {
	s := open(t, nil)
	b := s.logIn(bobsToken)
	for _, page := range []string{"", "records", "nothing", "login", "style.css", "script.js"} {
		r, text := b.get(page)
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%q has %s: %q", page, name, got)
			}
		}
		if found := regexp.MustCompile(`(?i)<script>|<style|\son[a-z]+=|\sstyle=|javascript:|(src|href|action)="(https?:)?//`).FindString(text); found != "" && !strings.Contains(page, ".") {
			t.Errorf("%q has %q", page, found)
		}
	}
}

func TestSecurity_AForgedFormChangesNothing(t *testing.T) {
	s := open(t, nil)
	id := s.unknown(payment, onlyonce.Result{})
	ada, other := s.logIn(adasToken), s.logIn(adasToken)
	_, page := other.get("records/" + id)
	foreign := regexp.MustCompile(`name="form_token" value="([^"]*)"`).FindStringSubmatch(page)[1]
	for name, forge := range map[string]func(b *browser, v url.Values){
		"another site":              func(b *browser, _ url.Values) { b.header.Set("Sec-Fetch-Site", "cross-site") },
		"another host of the site":  func(b *browser, _ url.Values) { b.header.Set("Sec-Fetch-Site", "same-site") },
		"another origin":            func(b *browser, _ url.Values) { b.header = http.Header{"Origin": {"https://evil.example"}} },
		"an opaque origin":          func(b *browser, _ url.Values) { b.header = http.Header{"Origin": {"null"}} },
		"no token":                  func(_ *browser, v url.Values) { v.Set("form_token", "") },
		"a wrong token":             func(_ *browser, v url.Values) { v.Set("form_token", strings.Repeat("0", 64)) },
		"a token of other sessions": func(_ *browser, v url.Values) { v.Set("form_token", foreign) },
	} {
		b := *ada
		b.header = ada.header.Clone()
		values := url.Values{}
		forge(&b, values)
		if r, _ := b.decide(id, "delete", values); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
	if r, err := s.store.Lookup(t.Context(), payment); err != nil || r.State != onlyonce.StateUnknown || len(s.store.trail) > 0 {
		t.Errorf("%v, %v", r.State, err)
	}
}

func TestSecurity_AReaderSeesAndDecidesNothing(t *testing.T) {
	s := open(t, nil)
	id := s.unknown(payment, onlyonce.Result{})
	b := s.logIn(bobsToken)
	if r, text := b.get("records/" + id); r.StatusCode != 200 || !strings.Contains(text, "order-17") || strings.Contains(text, "Resolve as") {
		t.Errorf("the page got %d\n%s", r.StatusCode, text)
	}
	_, page := b.get("records")
	token := regexp.MustCompile(`name="form_token" value="([^"]*)"`).FindStringSubmatch(page)[1]
	r, _ := s.store.Lookup(t.Context(), payment)
	for _, action := range []string{"completed", "failed", "rerun", "delete", "extend"} {
		form := url.Values{"form_token": {token}, "fence": {strconv.FormatInt(r.Fence, 10)}, "state": {"unknown"}}
		if r, _ := b.decide(id, action, form); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", action, r.StatusCode)
		}
	}
	if r, _ := b.do(http.MethodPost, "messages", url.Values{"form_token": {token}, "action": {"discard"}}.Encode()); r.StatusCode != http.StatusForbidden {
		t.Errorf("messages: %d", r.StatusCode)
	}
}

func TestSecurity_TheLivePagesOfATokenLeavePlacesToOthers(t *testing.T) {
	s := open(t, nil)
	live := func(b *browser) (status int, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"live", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, func() {
			cancel()
			_ = resp.Body.Close() // of a request that was canceled
		}
	}
	want := func(b *browser, want int) (end func()) {
		t.Helper()
		got, end := live(b)
		t.Cleanup(end)
		if got != want {
			t.Errorf("a live page got %d, want %d", got, want)
		}
		return end
	}
	ends := make([]func(), 0, tokenStreams)
	for range tokenStreams {
		ends = append(ends, want(s.logIn(bobsToken), http.StatusOK))
	}
	want(s.logIn(bobsToken), http.StatusServiceUnavailable)
	want(s.logIn(adasToken), http.StatusOK)
	ends[0]()
	for b := s.logIn(bobsToken); ; { // until the server sees that the page is gone
		got, end := live(b)
		if end(); got == http.StatusOK {
			break
		}
	}
	var all streams
	for n := range maxStreams {
		if !all.begin(Token{Hash: [32]byte{byte(n)}}) {
			t.Errorf("page %d may not be live", n)
		}
	}
	if all.begin(Token{Hash: [32]byte{255}}) {
		t.Error("the live pages of all tokens have no limit")
	}
}
