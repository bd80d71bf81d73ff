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
