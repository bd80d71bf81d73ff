package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// The tokens of the console in these tests.
const (
	writersToken = "the token of a writer, long and random"
	readersToken = "the token of a reader, long and random"
)

// consoleTokens makes a file of tokens.
func consoleTokens(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "console-tokens")
	cmdtest.WriteFile(t, path, fmt.Sprintf("ada writer %x\nbob reader %x\n", sha256.Sum256([]byte(writersToken)), sha256.Sum256([]byte(readersToken))))
	return path
}

func TestServe_ThePageAtTheRootSaysWhatIsHere(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--admin", "127.0.0.1:0", "--console-tokens", consoleTokens(t)}} {
		s := startServe(t, t.TempDir(), args...)
		got := s.get("/")
		if got.status != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") || strings.Contains(got.body, "the console is off") != (args == nil) {
			t.Errorf("%v: %+v", args, got)
		}
		for _, path := range []string{"/api/v1/items", "/v1/sandboxes", "/orders", "/healthz", "/metrics", "/console/"} {
			if !strings.Contains(got.body, path) {
				t.Errorf("%v: there is no %s", args, path)
			}
		}
		for _, path := range []string{"/console/", "/console/records", "/nothing"} {
			if got := s.get(path); got.status != 404 {
				t.Errorf("%s at the address of callers: %d", path, got.status)
			}
		}
	}
}

func TestServe_WithoutTokensTheConsoleIsOffAndSaysHowToTurnItOn(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--admin", "127.0.0.1:0")
	for _, path := range []string{"/console/", "/console/login", "/console/records"} {
		if got := s.at(s.adminURL(t)).get(path); got.status != 404 || !strings.Contains(got.body, "--console-tokens") {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// A console is the console of a process, and a client that is logged in.
type console struct {
	t      *testing.T
	url    string
	client *http.Client
}

func openConsole(t *testing.T, s *served, path, token string) *console {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &console{t, s.adminURL(t) + path, &http.Client{Jar: jar}}
	if page := c.submit("login", "login", url.Values{"token": {token}}); !strings.Contains(page, "Log out") {
		t.Fatalf("the login got\n%s", page)
	}
	return c
}

func (c *console) get(path string) string {
	c.t.Helper()
	return c.do(http.MethodGet, path, nil)
}

func (c *console) do(method, path string, form url.Values) string {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := c.client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// submit posts a form of a page, with the token that the page has.
func (c *console) submit(page, to string, form url.Values) string {
	c.t.Helper()
	found := regexp.MustCompile(`name="form_token" value="([^"]*)"`).FindStringSubmatch(c.get(page))
	if found == nil {
		c.t.Fatalf("%s has no form", page)
	}
	form.Set("form_token", found[1])
	return c.do(http.MethodPost, to, form)
}

func TestServe_EveryStoreHasItsConsole(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--store", cmdtest.NewPostgresURL(t), "--admin", "127.0.0.1:0", "--console-tokens", consoleTokens(t))
	if got := s.do("POST", "/api/v1/items", `{"sku":"LAMP-1","title":"Lamp","status":"active"}`, "Content-Type", "application/json", "Idempotency-Key", "item-1"); got.status != 201 {
		t.Fatalf("the item: %+v", got)
	}
	if got := s.do("POST", "/orders", `{"items":[{"product_id":"prod-1","quantity":1,"unit_price":"19.90"}]}`, "Content-Type", "application/json", "Idempotency-Key", "order-1"); got.status != 201 {
		t.Fatalf("the order: %+v", got)
	}
	for path, keys := range map[string][2]string{"/console/": {"item-1", "order-1"}, "/orders-console/": {"order-1", "item-1"}} {
		c := openConsole(t, s, path, readersToken)
		if page := c.get("records"); !strings.Contains(page, keys[0]) || strings.Contains(page, keys[1]) {
			t.Errorf("%s lists\n%s", path, page)
		}
		cmdtest.Until(t, path+" has the overview", func() bool {
			page := c.get("")
			return strings.Contains(page, "Healthy") && strings.Contains(page, `data-live="outcome-executed">1<`)
		})
	}
}

func TestServe_AParkedMessageIsRequeuedOrDiscardedInTheConsole(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	queue := parkMessages(t, "sqlite:"+filepath.Join(data, "onlyonce.db"), "<b>one</b>", "two", "three")
	s := startServe(t, data, "--admin", "127.0.0.1:0", "--console-tokens", consoleTokens(t))
	c := openConsole(t, s, "/console/", writersToken)
	page := c.get("messages")
	values := regexp.MustCompile(`name="message" value="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(values) != 3 || !strings.Contains(page, "&lt;b&gt;one&lt;/b&gt;") || strings.Contains(page, "hunter2") {
		t.Fatalf("the page is\n%s", page)
	}
	value := func(i int) string { return html.UnescapeString(values[i][1]) }
	for name, form := range map[string]url.Values{
		"no reason":         {"action": {"discard"}, "message": {value(0)}},
		"no message":        {"action": {"discard"}, "reason": {"ticket 4711"}},
		"no action":         {"message": {value(0)}, "reason": {"ticket 4711"}},
		"one that has gone": {"action": {"discard"}, "message": {value(0), strings.Split(value(1), ".")[0] + ".0123456789abcdef"}, "reason": {"ticket 4711"}},
	} {
		if page := c.submit("messages", "messages", form); !strings.Contains(page, `role="alert"`) {
			t.Errorf("%s:\n%s", name, page)
		}
	}
	if n := parked(t, queue); n != 3 {
		t.Fatalf("%d are parked", n)
	}
	bob := openConsole(t, s, "/console/", readersToken)
	if page := bob.get("messages"); strings.Contains(page, "Discard the selected") || !strings.Contains(page, "two") {
		t.Errorf("a reader gets\n%s", page)
	}
	if page := bob.submit("records", "messages", url.Values{"action": {"discard"}, "message": {value(0)}, "reason": {"ticket 4711"}}); !strings.Contains(page, "may only read") {
		t.Errorf("a reader's form got\n%s", page)
	}
	if page := c.submit("messages", "messages", url.Values{"action": {"discard"}, "message": {value(0), value(2)}, "reason": {"ticket 4711"}}); !strings.Contains(page, "Discarded: 2") {
		t.Errorf("the discard got\n%s", page)
	}
	s.logs(t, "ticket 4711")
	if page := c.submit("messages", "messages", url.Values{"action": {"requeue"}, "message": {value(1)}, "reason": {"ticket 4712 <b>"}}); !strings.Contains(page, "Requeued: 1") {
		t.Errorf("the requeue got\n%s", page)
	}
	trail, err := queue.(outbox.Auditor).AuditTrail(t.Context(), 0, 10)
	if err != nil || len(trail) != 3 || trail[0].Reason != "ticket 4712 <b>" || trail[0].Action != outbox.ActionRequeue || trail[1].Reason != "ticket 4711" || trail[0].Actor == "" {
		t.Errorf("the audit trail is %+v, %v", trail, err)
	}
	if page := bob.get("messages"); strings.Count(page, "<blockquote>") != 3 || !strings.Contains(page, "ticket 4712 &lt;b&gt;") || !strings.Contains(page, "<strong>Discarded</strong>") {
		t.Errorf("a reader gets\n%s", page)
	}
}

// parkMessages makes a store whose outbox has parked messages with the keys.
func parkMessages(t *testing.T, at string, keys ...string) outbox.Queue {
	t.Helper()
	u, err := storeurl.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	queue := store.Outbox()
	tx, err := store.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := queue.Append(t.Context(), tx, outbox.Message{ID: "of " + key, Topic: "order.created", Key: key, Payload: []byte(`{"password":"hunter2"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	const owner = "0123456789abcdef"
	leased, err := queue.Lease(t.Context(), owner, time.Hour, len(keys))
	if err != nil || len(leased) != len(keys) {
		t.Fatalf("%d messages were leased: %v", len(leased), err)
	}
	for _, e := range leased {
		if err := queue.Settle(t.Context(), owner, []outbox.Verdict{{Seq: e.Seq, State: outbox.StateParked, Attempts: 3, Error: "the broker rejects it"}}); err != nil {
			t.Fatal(err)
		}
	}
	return queue
}

func parked(t *testing.T, queue outbox.Queue) int {
	t.Helper()
	list, err := queue.Parked(context.WithoutCancel(t.Context()), -1<<63, 10)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
