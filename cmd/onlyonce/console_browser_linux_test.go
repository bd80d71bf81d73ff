package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// newBrowser starts a browser with an empty profile, which ends with the test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(needs.Program(t, "chromium")), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun,
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(ctx, 5*cmdtest.Soon) // for all steps of a test
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

// A visitor is a person with a browser at a console.
type visitor struct {
	t   *testing.T
	ctx context.Context
	url string // of the console
}

func (v *visitor) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, actions...); err != nil {
		v.t.Fatalf("%s: %v", what, err)
	}
}

// get returns the value of an action.
func get[T any](v *visitor, what string, action chromedp.Action[T]) T {
	v.t.Helper()
	value, err := chromedp.Run(v.ctx, action)
	if err != nil {
		v.t.Fatalf("%s: %v", what, err)
	}
	return value
}

// until waits until a condition in the page holds.
func (v *visitor) until(what, script string) {
	v.t.Helper()
	get(v, what, chromedp.Poll[bool](script, chromedp.WithPollingTimeout(cmdtest.Soon)))
}

func (v *visitor) text(selector string) (text string) {
	v.t.Helper()
	return get(v, "read "+selector, chromedp.Text(chromedp.CSS(selector)))
}

func (v *visitor) logIn(token string) {
	v.t.Helper()
	if _, err := chromedp.Call(v.ctx, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
		v.t.Fatal(err)
	}
	v.do("log in",
		chromedp.Navigate(v.url), chromedp.WaitVisible(chromedp.CSS("#token")),
		chromedp.SetValue(chromedp.CSS("#token"), token), chromedp.Click(chromedp.CSS("button")), chromedp.WaitVisible(chromedp.CSS(".tabs")))
}

// shoot writes screenshots of the page, in four variants, if a directory for them is set.
func (v *visitor) shoot(name string) {
	v.t.Helper()
	dir := os.Getenv("ONLYONCE_SCREENSHOTS")
	if dir == "" {
		return
	}
	get(v, "name the store", chromedp.Evaluate[string](`document.querySelector(".store bdi").textContent = "sqlite:/var/lib/onlyonce/payments.db"`))
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			v.do("size the window", chromedp.EmulateViewport(width, 800))
			v.media(scheme)
			png := get(v, "take a screenshot", chromedp.FullScreenshot(100))
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), png, 0o600); err != nil {
				v.t.Fatal(err)
			}
		}
	}
	v.do("size the window", chromedp.EmulateViewport(1280, 800))
}

func (v *visitor) media(scheme string) {
	v.t.Helper()
	features := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(v.ctx, emulation.SetEmulatedMedia, features); err != nil {
		v.t.Fatal(err)
	}
}

// A flakyBank is an upstream that charges, and fails or breaks the connection before its
// response if a header says so.
type flakyBank struct {
	*httptest.Server
	charges atomic.Int64
}

func newFlakyBank(t *testing.T) *flakyBank {
	b := &flakyBank{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := b.charges.Add(1)
		if r.Header.Get("X-Break") != "" {
			panic(http.ErrAbortHandler)
		}
		if r.Header.Get("X-Fail") != "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"charge": fmt.Sprintf("ch_%d", n), "amount": "19.90", "currency": "EUR", "card_number": "4111 1111 1111 1111",
			"note": r.Header.Get("X-Note"), "customer": map[string]string{"name": "Ada", "email": "ada@example.com"},
		})
	}))
	t.Cleanup(b.Close)
	return b
}

// startHolding starts a proxy in front of the bank that holds commands of unknown outcome, with a
// console.
func startHolding(t *testing.T, bank *flakyBank) *served {
	t.Helper()
	return startProxy(t, bank.URL, "--store", "sqlite:"+filepath.Join(t.TempDir(), "records.db"), "--tenant-header", "X-Tenant", "--unknown", "hold",
		"--admin", "127.0.0.1:0", "--console-tokens", consoleTokens(t), "--console-redact", "/customer/email")
}

func TestBrowser_AnOperatorFindsAHeldPaymentDecidesItAndTheClientGetsTheAnswer(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	needs.Program(t, "chromium")
	bank := newFlakyBank(t)
	s := startHolding(t, bank)
	v := &visitor{t, newBrowser(t), s.adminURL(t) + "/console/"}
	pay := func(key string, header ...string) answer {
		return s.do("POST", "/payments", `{"amount":"19.90"}`, append(header, "Idempotency-Key", key, "X-Tenant", "acme", "Content-Type", "application/json")...)
	}

	v.logIn(writersToken)
	before := v.text(`[data-live="outcome-executed"]`)
	load, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; load.Err() == nil; n++ {
			key := fmt.Sprintf("load-%d", n/2)
			switch n % 40 {
			case 31:
				s.do("POST", "/payments", `{"amount":"20.90"}`, "Idempotency-Key", key, "X-Tenant", "acme", "Content-Type", "application/json") // a mismatch
			case 38:
				pay(key, "X-Fail", "1")
			default:
				pay(key)
			}
			time.Sleep(5 * time.Millisecond) // a moderate load
		}
	}()
	v.until("the numbers move", fmt.Sprintf(`document.querySelector('[data-live="outcome-executed"]').textContent !== %q && document.querySelector('[data-live="outcome-replayed"]').textContent !== "0" && document.querySelector('[data-path="0"]').getAttribute("d") !== ""`, before))
	if got := pay("order-17", "X-Break", "1"); got.status != http.StatusBadGateway {
		t.Fatalf("the broken payment got %+v", got)
	}
	if got := pay("order-17"); got.status != http.StatusConflict {
		t.Fatalf("its repeat got %+v", got)
	}
	pay("order-18", "X-Break", "1")
	v.until("the held payment is counted", `document.querySelector('[data-live="unresolved"]').textContent === "2"`)
	if os.Getenv("ONLYONCE_SCREENSHOTS") != "" {
		time.Sleep(110 * time.Second) // a chart to look at
	}
	v.shoot("overview")
	stop()
	<-ended

	v.do("open the queue", chromedp.Click(chromedp.CSS(`a[href$="/decisions"]`)), chromedp.WaitVisible(chromedp.CSS(".list")))
	v.shoot("decisions")
	v.do("search the key",
		chromedp.Navigate(v.url+"records"), chromedp.SetValue(chromedp.CSS("#key"), "order-17"), chromedp.Submit(chromedp.CSS(".search")),
		chromedp.WaitVisible(chromedp.CSS(`.list .alarm`)))
	v.shoot("found")
	if address := get(v, "read the address", chromedp.Location()); strings.Contains(address, "order-17") {
		t.Errorf("the key is in the address %s", address)
	}
	v.do("open the record", chromedp.Click(chromedp.CSS(".list a")), chromedp.WaitVisible(chromedp.CSS("#decide")))
	v.do("decide",
		chromedp.Click(chromedp.CSS(".choices details:first-child summary")), chromedp.WaitVisible(chromedp.CSS("#body")),
		chromedp.SetValue(chromedp.CSS("#status"), "201"), chromedp.SetValue(chromedp.CSS("#body"), `{"charge":"ch_17","found":true}`),
		chromedp.SetValue(chromedp.CSS("#why1"), "ticket 4711: the bank has charge ch_17"))
	v.shoot("record")
	v.do("submit", chromedp.Click(chromedp.CSS(".choices details:first-child button")), chromedp.WaitVisible(chromedp.CSS(".note.good")))
	if life := v.text(".life"); !strings.Contains(life, "ada") || !strings.Contains(life, "ticket 4711: the bank has charge ch_17") || !strings.Contains(life, "completed with 201") {
		t.Errorf("the life of the record is\n%s", life)
	}
	v.shoot("resolved")
	charged := bank.charges.Load()
	if got := pay("order-17"); got.status != 201 || got.body != `{"charge":"ch_17","found":true}` || got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the retry got %+v", got)
	}
	if bank.charges.Load() != charged {
		t.Error("the retry charged again")
	}
}

func TestBrowser_WhatClientsSendDoesNotRunAndASecretIsNotShown(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	needs.Program(t, "chromium")
	bank := newFlakyBank(t)
	s := startHolding(t, bank)
	v := &visitor{t, newBrowser(t), s.adminURL(t) + "/console/"}
	const script = `</pre><script>window.ran = 1</script><img src=x onerror="window.ran = 1">`
	got := s.do("POST", "/payments", "{}", "Idempotency-Key", "order-17", "X-Tenant", "<script>window.ran=1</script>", "X-Note", script)
	if got.status != 201 {
		t.Fatalf("the payment got %+v", got)
	}
	v.logIn(readersToken)
	v.do("open the record", chromedp.Navigate(v.url+"records"), chromedp.WaitVisible(chromedp.CSS(".list a")), chromedp.Click(chromedp.CSS(".list a")), chromedp.WaitVisible(chromedp.CSS("#response")))
	text := v.text("main")
	for _, want := range []string{"<script>window.ran=1</script>", "<script>window.ran = 1</script>", `"card_number": "•••"`, `"email": "•••"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %s", want)
		}
	}
	if strings.Contains(text, "4111 1111") || strings.Contains(text, "ada@example.com") {
		t.Errorf("the page shows a secret:\n%s", text)
	}
	if get(v, "look for a script", chromedp.Evaluate[bool](`window.ran === 1`)) {
		t.Error("a script of a client ran")
	}
	if get(v, "look for forms", chromedp.Evaluate[bool](`document.querySelector("#decide") !== null`)) {
		t.Error("a reader can decide")
	}
	if !get(v, "add a script", chromedp.Evaluate[bool](`(() => { const s = document.createElement("script"); s.textContent = "window.ran = 1"; document.body.append(s); return window.ran !== 1 })()`)) {
		t.Error("the policy lets an inline script run")
	}
	v.shoot("reader")
}

func TestBrowser_APageOfAnotherSiteCannotDecide(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	needs.Program(t, "chromium")
	bank := newFlakyBank(t)
	s := startHolding(t, bank)
	v := &visitor{t, newBrowser(t), s.adminURL(t) + "/console/"}
	s.do("POST", "/payments", "{}", "Idempotency-Key", "order-17", "X-Tenant", "acme", "X-Break", "1")
	v.logIn(writersToken)
	v.do("open the record", chromedp.Navigate(v.url+"decisions"), chromedp.WaitVisible(chromedp.CSS(".list a")), chromedp.Click(chromedp.CSS(".list a")), chromedp.WaitVisible(chromedp.CSS("#decide")))
	at := get(v, "read the address", chromedp.Location())
	fields := get(v, "copy the form", chromedp.Evaluate[string](`[...document.querySelectorAll(".choices details:nth-child(4) form input[type=hidden]")].map((e) => e.outerHTML).join("")`))
	// The other site is another port of the same host, so that the browser sends it the
	// cookie, and it even knows the token of the form.
	forged := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><form method="post" action="%s">%s<input name="reason" value="forged"><input name="sure" value="yes"><input type="submit" id="win"></form>`, at, fields)
	}))
	defer forged.Close()
	v.do("visit the other site", chromedp.Navigate(forged.URL), chromedp.WaitVisible(chromedp.CSS("#win")))
	v.do("submit its form", chromedp.Click(chromedp.CSS("#win")), chromedp.WaitVisible(chromedp.CSS(".problem")))
	if text := v.text("main"); !strings.Contains(text, "another site") {
		t.Errorf("the forged form got\n%s", text)
	}
	v.do("look again", chromedp.Navigate(at), chromedp.WaitVisible(chromedp.CSS("#decide")))
	if text := v.text("main"); strings.Contains(text, "forged") || !strings.Contains(text, "unknown") {
		t.Errorf("the record is\n%s", text)
	}
}
