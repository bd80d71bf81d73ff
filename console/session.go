package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	idleTimeout = 30 * time.Minute // a session without a request ends
	maxLife     = 12 * time.Hour   // of a session
	maxSessions = 50               // of a token: beyond that, the one that was idle for longest ends

	browserAge = 180 * 24 * time.Hour // for how long a browser is known

	sessionCookie = "onlyonce-console"
	loginCookie   = "onlyonce-console-login"   // of a browser that shows the login form
	browserCookie = "onlyonce-console-browser" // of a browser in which a token was valid; it replaces no token
)

// A session is a person who is logged in.
type session struct {
	Token
	id      string // secret: the cookie's value
	ends    time.Time
	lastUse time.Time
}

// sessions are those of a console. They are found by the hash of the cookie's value, so
// that the time of a search tells nothing about valid values.
type sessions struct {
	mu   sync.Mutex
	list map[[sha256.Size]byte]*session
}

// add begins a session.
func (s *sessions) add(t Token, now time.Time) *session {
	begun := &session{Token: t, id: rand.Text() + rand.Text(), ends: now.Add(maxLife), lastUse: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = make(map[[sha256.Size]byte]*session)
	}
	s.makeRoom(t, now)
	s.list[sha256.Sum256([]byte(begun.id))] = begun
	return begun
}

// makeRoom removes the sessions that have ended and, if a token has too many, the one of
// that token that was idle for longest.
func (s *sessions) makeRoom(t Token, now time.Time) {
	var oldest [sha256.Size]byte
	var since time.Time
	n := 0
	for key, one := range s.list {
		if one.ended(now) {
			delete(s.list, key)
			continue
		}
		if one.Hash != t.Hash {
			continue
		}
		if n++; since.IsZero() || one.lastUse.Before(since) {
			oldest, since = key, one.lastUse
		}
	}
	if n >= maxSessions {
		delete(s.list, oldest)
	}
}

func (s *session) ended(now time.Time) bool {
	return now.After(s.ends) || now.Sub(s.lastUse) > idleTimeout
}

// find returns the session of a cookie, or nil. If used is set, the session is not idle.
func (s *sessions) find(id string, now time.Time, used bool) *session {
	key := sha256.Sum256([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.list[key]
	if found == nil {
		return nil
	}
	if found.ended(now) {
		delete(s.list, key)
		return nil
	}
	if used {
		found.lastUse = now
	}
	return found
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, sha256.Sum256([]byte(id)))
}

// sessionOf returns the session of a request, or nil. Another site of the domain may have
// set a cookie of the same name: one that belongs to no session is ignored, and of two
// sessions, neither counts.
func (c *console) sessionOf(r *http.Request, used bool) *session {
	var found *session
	for _, given := range r.CookiesNamed(sessionCookie) {
		switch s := c.sessions.find(given.Value, time.Now(), used); {
		case s == nil || s == found:
		case found != nil:
			return nil
		default:
			found = s
		}
	}
	return found
}

// newBrowser returns the value of a loginCookie.
func newBrowser() string { return rand.Text() }

// knownBrowser returns the value of a browserCookie. It is made from the token, so that it
// is valid until the token is removed, and in every process.
func knownBrowser(t Token) string {
	mac := hmac.New(sha256.New, t.Hash[:])
	mac.Write([]byte(browserCookie))
	return hex.EncodeToString(mac.Sum(nil))
}

// clientOf returns for whom a login counts.
func (c *console) clientOf(r *http.Request) client {
	given := cookie(r, browserCookie)
	for _, t := range c.tokens {
		if hmac.Equal([]byte(given), []byte(knownBrowser(t))) {
			return client{token: t.Hash}
		}
	}
	return client{network: networkOf(r.RemoteAddr)}
}

// cookie returns the value of a cookie. Of two with the same name, one may come from
// another site of the domain, so that neither counts.
func cookie(r *http.Request, name string) string {
	given := r.CookiesNamed(name)
	if len(given) != 1 {
		return ""
	}
	return given[0].Value
}

// setCookie sets a cookie of the console for a time, or without one until the browser
// ends. An empty value removes it.
func (c *console) setCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	seconds := int(age / time.Second)
	if value == "" {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: c.path, MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: overTLS(r),
	})
}

// overTLS reports whether the browser speaks TLS. If a server in front of this one ends
// it, only the Origin of a form says so.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

// formToken returns the token that a form of the browser with a cookie must contain. A page of
// another site can't know it.
func (c *console) formToken(cookie string) string {
	mac := hmac.New(sha256.New, c.secret[:])
	mac.Write([]byte(cookie))
	return hex.EncodeToString(mac.Sum(nil))
}

// ownForm reports whether a form comes from a page of the console that the browser with
// a cookie got.
func (c *console) ownForm(r *http.Request, cookie string) bool {
	return cookie != "" && hmac.Equal([]byte(r.PostFormValue("form_token")), []byte(c.formToken(cookie)))
}
