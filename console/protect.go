package console

import (
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// policy is the Content-Security-Policy: pages use the console's own style sheet, script
// and icon, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// protect sets the headers of every response.
func (c *console) protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")        // for browsers that do not know frame-ancestors
		header.Set("Referrer-Policy", "same-origin") // with no-referrer, a form's Origin would be null
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("X-Robots-Tag", "noindex")
		header.Set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

// A pageHandler serves a person who is logged in.
type pageHandler func(http.ResponseWriter, *http.Request, *session)

// seen serves a page to everyone who is logged in.
func (c *console) seen(h pageHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := c.sessionOf(r, true)
		switch {
		case s != nil:
			h(w, r, s)
		case comesFromElsewhere(r):
			c.render(w, nil, http.StatusOK, "again", "One moment", c.ownPage(r.URL.RequestURI()))
		default:
			http.Redirect(w, r, c.path+"login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		}
	}
}

// comesFromElsewhere reports whether a person has followed a link on another site. The
// browser then sends no cookie, although the person may be logged in.
func comesFromElsewhere(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		(r.Header.Get("Sec-Fetch-Site") == "cross-site" || r.Header.Get("Sec-Fetch-Site") == "same-site")
}

// The longest forms, in bytes.
const (
	maxForm      = 2 << 20  // of a person who is logged in
	maxLoginForm = 32 << 10 // it has a token and the address of a page, and anyone can send many at a time
)

var crossOrigin = http.NewCrossOriginProtection()

// ownSite reports whether a form comes from a page of this site. If not, it has responded.
func (c *console) ownSite(w http.ResponseWriter, r *http.Request, s *session) bool {
	if err := crossOrigin.Check(r); err != nil {
		c.problem(w, s, http.StatusForbidden, "This form was sent by a page of another site. Nothing was changed.")
		return false
	}
	if !httpfield.IsType(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		c.problem(w, s, http.StatusUnsupportedMediaType, "This is not a form of the console. Nothing was changed.")
		return false
	}
	return true
}

// readForm reads a form of at most so many bytes, and reports whether it comes from a page of
// this site. If not, it has responded.
func (c *console) readForm(w http.ResponseWriter, r *http.Request, s *session, most int64) bool {
	if !c.ownSite(w, r, s) {
		return false
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if err := r.ParseForm(); err != nil {
		c.problem(w, s, http.StatusBadRequest, "The form is too large or damaged. Nothing was changed.")
		return false
	}
	return true
}

// posted serves a form of a person with a role. Everyone has the role of a reader.
func (c *console) posted(role Role, h pageHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := c.sessionOf(r, true)
		if s == nil {
			c.rejectForm(w, r)
			return
		}
		if !c.readForm(w, r, s, maxForm) {
			return
		}
		switch {
		case !c.ownForm(r, s.id):
			c.problem(w, s, http.StatusForbidden, "This form is not from your session. Nothing was changed. Go back, reload the page, and try again.")
		case role == Writer && s.Role != Writer:
			c.problem(w, s, http.StatusForbidden, "Your token may only read. Nothing was changed.")
		default:
			h(w, r, s)
		}
	}
}

// rejectForm rejects a form of someone who is not logged in. It keeps nothing of the form in
// memory, because anyone can send many at a time.
func (c *console) rejectForm(w http.ResponseWriter, r *http.Request) {
	if !c.ownSite(w, r, nil) {
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxForm)) // a browser reads the response once it has sent the form
	c.problem(w, nil, http.StatusForbidden, "You are not logged in, or your session has ended. Nothing was changed.")
}

// A loginForm holds the values that the login page shows.
type loginForm struct{ Token, Next, Problem string }

func (c *console) showLogin(w http.ResponseWriter, r *http.Request) {
	if c.sessionOf(r, true) != nil {
		http.Redirect(w, r, c.path, http.StatusSeeOther)
		return
	}
	c.loginPage(w, r, http.StatusOK, r.URL.Query().Get("next"), "")
}

func (c *console) loginPage(w http.ResponseWriter, r *http.Request, status int, next, problem string) {
	browser := cookie(r, loginCookie)
	if browser == "" {
		browser = newBrowser()
		c.setCookie(w, r, loginCookie, browser, 0)
	}
	c.render(w, nil, status, "login", "Log in", loginForm{Token: c.formToken(browser), Next: c.ownPage(next), Problem: problem})
}

// ownPage returns the address of a page of the console that a person wanted to see, or
// of the first one.
func (c *console) ownPage(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || strings.ContainsFunc(next, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }) ||
		!strings.HasPrefix(u.Path, c.path) || strings.HasPrefix(u.Path, "//") || strings.TrimSuffix(path.Clean(u.Path), "/") != strings.TrimSuffix(u.Path, "/") {
		return c.path
	}
	switch strings.TrimPrefix(u.Path, c.path) {
	case "login", "logout", "live":
		return c.path
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

func (c *console) logIn(w http.ResponseWriter, r *http.Request) {
	if !c.readForm(w, r, nil, maxLoginForm) {
		return
	}
	next := c.ownPage(r.PostFormValue("next"))
	browser := cookie(r, loginCookie)
	if !c.ownForm(r, browser) {
		c.loginPage(w, r, http.StatusForbidden, next, "The form was too old, or your browser does not send cookies to this site. Try again.")
		return
	}
	from := c.clientOf(r)
	if !c.logins.allow(from, time.Now()) {
		w.Header().Set("Retry-After", "10")
		c.loginPage(w, r, http.StatusTooManyRequests, next, "Too many attempts. Wait a minute, then try again.")
		return
	}
	t, ok := find(c.tokens, strings.TrimSpace(r.PostFormValue("token")))
	if !ok {
		c.log.WarnContext(r.Context(), "console: a login failed", "client", networkOf(r.RemoteAddr).String())
		c.loginPage(w, r, http.StatusForbidden, next, "This token is not valid.")
		return
	}
	c.logins.succeed(from)
	for _, old := range r.CookiesNamed(sessionCookie) {
		c.sessions.end(old.Value)
	}
	begun := c.sessions.add(t, time.Now())
	c.setCookie(w, r, sessionCookie, begun.id, 0)
	c.setCookie(w, r, loginCookie, "", 0)
	c.setCookie(w, r, browserCookie, knownBrowser(t), browserAge)
	c.log.InfoContext(r.Context(), "console: logged in", "actor", t.Name, "role", string(t.Role), "client", networkOf(r.RemoteAddr).String())
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (c *console) logOut(w http.ResponseWriter, r *http.Request, s *session) {
	c.sessions.end(s.id)
	c.setCookie(w, r, sessionCookie, "", 0)
	http.Redirect(w, r, c.path+"login", http.StatusSeeOther)
}
