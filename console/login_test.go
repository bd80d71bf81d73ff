package console

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

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
