package console

import (
	"context"
	"crypto/sha256"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// An auditedStore keeps an audit trail in memory.
type auditedStore struct {
	*memstore.Store
	trail []onlyonce.AuditEntry
}

func (s *auditedStore) ResolveAudited(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d onlyonce.Decision) error {
	before, err := s.Lookup(ctx, seen.ID)
	if err != nil {
		return err
	}
	if err := s.Resolve(ctx, seen, st); err != nil {
		return err
	}
	s.trail = append(s.trail, onlyonce.AuditEntry{ID: seen.ID, At: time.Now(), Decision: d, Before: before, After: st})
	return nil
}

func (s *auditedStore) AuditTrail(_ context.Context, id onlyonce.ID) (list []onlyonce.AuditEntry, err error) {
	for _, e := range s.trail {
		if e.ID == id {
			list = append(list, e)
		}
	}
	return list, nil
}

// The tokens of the tests.
const (
	adasToken = "the token of ada, a writer"
	bobsToken = "the token of bob, a reader"
)

// A site is a console that listens.
type site struct {
	t     *testing.T
	store *auditedStore
	url   string
}

func open(t *testing.T, change func(*Config)) *site {
	t.Helper()
	store := &auditedStore{Store: memstore.New(memstore.Config{})}
	cfg := Config{
		Store: store, Name: "memory://", Log: slog.New(slog.DiscardHandler), Meter: NewMeter(),
		Tokens: []Token{
			{Name: "ada", Role: Writer, Hash: sha256.Sum256([]byte(adasToken))},
			{Name: "bob", Role: Reader, Hash: sha256.Sum256([]byte(bobsToken))},
		},
	}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return &site{t, store, srv.URL + DefaultPath}
}

// unknown adds a record whose outcome is unknown.
func (s *site) unknown(id onlyonce.ID, result onlyonce.Result) string {
	s.t.Helper()
	s.settle(id, onlyonce.Settlement{State: onlyonce.StateUnknown, Error: "the upstream closed the connection", Result: result})
	return recordID(id)
}

func (s *site) settle(id onlyonce.ID, st onlyonce.Settlement) {
	s.t.Helper()
	r, err := s.store.Claim(s.t.Context(), onlyonce.Claim{ID: id, Owner: "0123456789abcdef", SkipFingerprint: true, Lease: time.Hour, TakeUnknown: true})
	if err == nil {
		err = s.store.Settle(s.t.Context(), onlyonce.Hold{ID: id, Owner: r.Owner, Fence: r.Fence}, st)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// A browser keeps cookies, and stops at redirects.
type browser struct {
	*site
	client *http.Client
	header http.Header
}

func (s *site) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &browser{s, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, http.Header{"Sec-Fetch-Site": {"same-origin"}}}
}

// logIn logs in with a token.
func (s *site) logIn(token string) *browser {
	s.t.Helper()
	b := s.browser()
	if r, page := b.submit("login", "login", url.Values{"token": {token}}); r.StatusCode != http.StatusSeeOther {
		s.t.Fatalf("the login got %d\n%s", r.StatusCode, page)
	}
	return b
}

func (b *browser) do(method, path, body string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header = b.header.Clone()
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(text)
}

func (b *browser) get(path string) (*http.Response, string) {
	b.t.Helper()
	return b.do(http.MethodGet, path, "")
}

// submit posts a form of a page, with the values that the page has in hidden fields unless
// they are given.
func (b *browser) submit(page, to string, values url.Values) (*http.Response, string) {
	b.t.Helper()
	_, text := b.get(page)
	for _, field := range regexp.MustCompile(`name="(form_token|fence|state|next)" value="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if !values.Has(field[1]) {
			values.Set(field[1], html.UnescapeString(field[2]))
		}
	}
	return b.do(http.MethodPost, to, values.Encode())
}

// decide submits the form of a decision with a reason.
func (b *browser) decide(id, action string, more url.Values) (*http.Response, string) {
	b.t.Helper()
	values := url.Values{"action": {action}, "reason": {"ticket 4711"}, "keep": {"24h"}, "sure": {"yes"}}
	for name, value := range more {
		values[name] = value
	}
	return b.submit("records/"+id, "records/"+id, values)
}

var payment = onlyonce.ID{Tenant: "acme", Operation: "POST /payments", Key: "order-17"}

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

func TestSecurity_WithoutASessionThereIsOnlyTheLogin(t *testing.T) {
	s := open(t, nil)
	id := s.unknown(payment, onlyonce.Result{})
	b := s.browser()
	for _, page := range []string{"", "records", "records/" + id, "decisions", "messages", "live", "nothing"} {
		r, text := b.get(page)
		if page == "live" && r.StatusCode == http.StatusForbidden {
			continue
		}
		if r.StatusCode != http.StatusSeeOther || !strings.HasPrefix(r.Header.Get("Location"), DefaultPath+"login?next=") || strings.Contains(text, "order-17") {
			t.Errorf("%q got %d, %s\n%s", page, r.StatusCode, r.Header.Get("Location"), text)
		}
	}
	for _, form := range []string{"records", "records/" + id, "messages", "logout"} {
		if r, _ := b.do(http.MethodPost, form, "action=delete&reason=x&sure=yes&keep=24h"); r.StatusCode != http.StatusForbidden {
			t.Errorf("%q got %d", form, r.StatusCode)
		}
	}
	for _, token := range []string{"", "wrong", adasToken + "x", strings.Repeat("a", 1<<16)} {
		if r, text := b.submit("login", "login", url.Values{"token": {token}}); r.StatusCode != http.StatusForbidden || !strings.Contains(text, "not valid") {
			t.Errorf("token %.20q got %d", token, r.StatusCode)
		}
	}
	if r, _ := b.get(""); r.StatusCode != http.StatusSeeOther {
		t.Errorf("afterwards: %d", r.StatusCode)
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

func TestSecurity_TheCookieOfASessionIsForTheConsoleOnly(t *testing.T) {
	s := open(t, nil)
	for origin, secure := range map[string]bool{s.url[:len(s.url)-len(DefaultPath)]: false, "https://" + strings.TrimPrefix(s.url[:len(s.url)-len(DefaultPath)], "http://"): true} {
		b := s.browser()
		b.get("login")
		b.header.Set("Origin", origin)
		r, _ := b.submit("login", "login", url.Values{"token": {bobsToken}})
		found := false
		for _, c := range r.Cookies() {
			if c.Name == sessionCookie {
				found = c.HttpOnly && c.SameSite == http.SameSiteStrictMode && c.Path == DefaultPath && c.Secure == secure && len(c.Value) >= 40 && c.MaxAge == 0
			}
		}
		if !found {
			t.Errorf("%s: %v", origin, r.Header["Set-Cookie"])
		}
	}
}

func TestSecurity_LoginsAreLimitedEvenForAValidToken(t *testing.T) {
	s := open(t, nil)
	b := s.browser()
	for range loginBurst {
		b.submit("login", "login", url.Values{"token": {"wrong"}})
	}
	if r, _ := b.submit("login", "login", url.Values{"token": {adasToken}}); r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
		t.Errorf("got %d", r.StatusCode)
	}
}

func TestSecurity_AStrangersGuessesDoNotKeepOutABrowserThatHasLoggedInBefore(t *testing.T) {
	s := open(t, nil)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	login := func(b *browser, token string) int {
		r, _ := b.submit("login", "login", url.Values{"token": {token}})
		return r.StatusCode
	}
	ada := s.logIn(adasToken)
	ada.submit("records", "logout", url.Values{})
	stranger := s.browser()
	for login(stranger, "wrong") != http.StatusTooManyRequests { // the address is the same
		continue
	}
	if r, _ := ada.get("records"); r.StatusCode != http.StatusSeeOther {
		t.Errorf("a browser that is known, and in which nobody is logged in, got %d", r.StatusCode)
	}
	for n := range loginBurst - 1 {
		if got := login(ada, "wrong"); got != http.StatusForbidden {
			t.Errorf("attempt %d in a browser that is known got %d", n, got)
		}
	}
	if got := login(ada, adasToken); got != http.StatusSeeOther {
		t.Errorf("the valid token got %d", got)
	}
	ada.submit("records", "logout", url.Values{})
	login(ada, "wrong")
	if got := login(ada, adasToken); got != http.StatusTooManyRequests {
		t.Errorf("a browser that is known may fail without a limit: %d", got)
	}
	for _, forged := range []string{"x", knownBrowser(Token{}), knownBrowser(Token{Hash: sha256.Sum256([]byte("a token that was removed"))})} {
		stranger.client.Jar.SetCookies(at, []*http.Cookie{{Name: browserCookie, Value: forged, Path: DefaultPath}})
		if got := login(stranger, adasToken); got != http.StatusTooManyRequests {
			t.Errorf("with the cookie %q, a stranger got %d", forged, got)
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

func TestSecurity_ASessionEndsWithTheLogOutAndWithTime(t *testing.T) {
	s := open(t, nil)
	b := s.logIn(adasToken)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	stolen := b.client.Jar.Cookies(at)
	if r, _ := b.submit("records", "logout", url.Values{}); r.StatusCode != http.StatusSeeOther {
		t.Fatalf("the log out got %d", r.StatusCode)
	}
	b.client.Jar.SetCookies(at, stolen)
	if r, _ := b.get("records"); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the old cookie got %d", r.StatusCode)
	}
	var list sessions
	now := time.Now()
	idle, busy := list.add(Token{}, now), list.add(Token{}, now)
	for at := now; at.Before(now.Add(maxLife)); at = at.Add(idleTimeout / 2) {
		if list.find(busy.id, at, true) == nil {
			t.Fatalf("a session that is used ended after %v", at.Sub(now))
		}
	}
	if list.find(idle.id, now.Add(idleTimeout+1), true) != nil || list.find(busy.id, now.Add(maxLife+1), true) != nil || list.find("", now, true) != nil {
		t.Error("a session does not end")
	}
}

func TestSecurity_TheSessionsOfATokenEndNoneOfAnother(t *testing.T) {
	var list sessions
	now := time.Now()
	ada := list.add(Token{Hash: sha256.Sum256([]byte(adasToken))}, now)
	for n := range 3 * maxSessions {
		list.add(Token{Hash: sha256.Sum256([]byte(bobsToken))}, now.Add(time.Duration(n)))
	}
	if list.find(ada.id, now, false) == nil {
		t.Error("many sessions of another token ended the session")
	}
	if n := len(list.list) - 1; n != maxSessions {
		t.Errorf("a token has %d sessions", n)
	}
}

func TestSecurity_ACookieOfAnotherSiteNeitherEndsNorReplacesASession(t *testing.T) {
	s := open(t, nil)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	ada, bob := s.logIn(adasToken), s.logIn(bobsToken)
	plant := func(b *browser, value string) { b.header.Set("Cookie", sessionCookie+"="+value) }
	stolen := ada.client.Jar.Cookies(at)
	own := slices.IndexFunc(stolen, func(c *http.Cookie) bool { return c.Name == sessionCookie })
	for _, value := range []string{"", "planted", stolen[own].Value} {
		plant(ada, value)
		if r, _ := ada.get("records"); r.StatusCode != http.StatusOK {
			t.Errorf("with the cookie %q, too, a session got %d", value, r.StatusCode)
		}
	}
	plant(bob, stolen[own].Value)
	if r, _ := bob.get("records"); r.StatusCode != http.StatusSeeOther {
		t.Errorf("with two sessions, a browser got %d", r.StatusCode)
	}
	if r, _ := bob.submit("login", "login", url.Values{"token": {bobsToken}}); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the login got %d", r.StatusCode)
	}
	if r, _ := bob.get("records"); r.StatusCode != http.StatusOK {
		t.Errorf("after the login, a browser got %d", r.StatusCode)
	}
}

func TestSecurity_ALoginLeadsToPagesOfTheConsoleOnly(t *testing.T) {
	c := &console{path: DefaultPath}
	for next, want := range map[string]string{
		"":                                DefaultPath,
		"/console/records?state=failed":   "/console/records?state=failed",
		"/console/":                       "/console/",
		"https://evil.example/console/":   DefaultPath,
		"//evil.example/console/":         DefaultPath,
		"/\\evil.example/console/":        DefaultPath,
		"/console/../../evil":             DefaultPath,
		"/other":                          DefaultPath,
		"javascript:alert(1)":             DefaultPath,
		"/console/logout":                 DefaultPath,
		"/console/\r\nSet-Cookie: a=b":    DefaultPath,
		"/console/records#\"><script>":    "/console/records",
		"http:/console/records":           DefaultPath,
		"/console/records?a=b;url=//evil": "/console/records?a=b;url=//evil",
	} {
		if got := c.ownPage(next); got != want {
			t.Errorf("%q leads to %q", next, got)
		}
	}
	if got := (&console{path: "/"}).ownPage("//evil.example/"); got != "/" {
		t.Errorf("it leads to %q", got)
	}
}

func TestConsole_ALinkOnAnotherSiteLeadsAPersonWhoIsLoggedInToItsPage(t *testing.T) {
	s := open(t, nil)
	b := s.browser() // the browser sends no cookie that is SameSite=Strict
	b.header = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}}
	r, text := b.get("records?state=failed")
	if r.StatusCode != 200 || !strings.Contains(text, `http-equiv="refresh" content="0;url=/console/records?state=failed"`) {
		t.Errorf("%d\n%s", r.StatusCode, text)
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
