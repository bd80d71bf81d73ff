package console

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

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
	for _, token := range []string{"", "wrong", adasToken + "x", strings.Repeat("a", 1<<14)} {
		if r, text := b.submit("login", "login", url.Values{"token": {token}}); r.StatusCode != http.StatusForbidden || !strings.Contains(text, "not valid") {
			t.Errorf("token %.20q got %d", token, r.StatusCode)
		}
	}
	if r, _ := b.get(""); r.StatusCode != http.StatusSeeOther {
		t.Errorf("afterwards: %d", r.StatusCode)
	}
}

func TestSecurity_WithoutASessionNoLongFormIsKeptInMemory(t *testing.T) {
	h, err := New(Config{Store: memstore.New(memstore.Config{}), Tokens: []Token{{Name: "ada", Role: Writer, Hash: sha256.Sum256([]byte(adasToken))}}})
	if err != nil {
		t.Fatal(err)
	}
	id := recordID(payment)
	for form, want := range map[string]int{"login": http.StatusBadRequest, "logout": http.StatusForbidden, "records": http.StatusForbidden, "records/" + id: http.StatusForbidden, "messages": http.StatusForbidden} {
		body := strings.NewReader("form_token=" + strings.Repeat("a", 1<<20))
		r := httptest.NewRequest(http.MethodPost, DefaultPath+form, body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if kept := len(r.PostForm.Get("form_token")); w.Code != want || kept > 0 {
			t.Errorf("%q got %d, and %d bytes are in memory", form, w.Code, kept)
		}
		if read := body.Size() - int64(body.Len()); form == "login" && read > maxLoginForm+1 {
			t.Errorf("%q: %d bytes were read", form, read)
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
