package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// An upstream is a server behind a proxy. It counts what it was asked to change,
// and responds with the count.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request // that change something
	hold chan struct{}   // not nil: a response waits until it is closed
}

func newUpstreamServer(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewServer(u)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		fmt.Fprintf(w, "GET %s tenant=%q for=%q", r.URL.Path, r.Header.Get("X-Tenant-ID"), r.Header.Get("X-Forwarded-For"))
		return
	}
	u.mu.Lock()
	u.seen = append(u.seen, r)
	n := len(u.seen)
	u.mu.Unlock()
	if u.hold != nil {
		<-u.hold
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Run", fmt.Sprint(n))
	w.Header().Set("X-Other", "o")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "run %d of %s", n, body)
}

func (u *upstream) runs() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

func (u *upstream) last() *http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[len(u.seen)-1]
}

// startProxy starts a proxy on a store in memory.
func startProxy(t *testing.T, up string, args ...string) *served {
	t.Helper()
	return start(t, append([]string{"proxy", "--listen", "127.0.0.1:0", "--upstream", up, "--store", "memory://"}, args...)...)
}

// startProxyFile starts a proxy with a file, which is written first; UP stands
// for the upstream in it.
func startProxyFile(t *testing.T, up, text string, args ...string) (*served, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy.yaml")
	cmdtest.WriteFile(t, path, strings.ReplaceAll(text, "UP", up))
	return start(t, append([]string{"proxy", "--config", path, "--listen", "127.0.0.1:0", "--store", "memory://"}, args...)...), path
}

// send posts a body with a key; header has names and values in turn.
func (s *served) send(key, body string, header ...string) answer {
	return s.do("POST", "/things", body, append(header, "Idempotency-Key", key)...)
}

func (s *served) logs(t *testing.T, text string) {
	t.Helper()
	cmdtest.Until(t, "the log says "+text, func() bool { return strings.Contains(s.log.String(), text) })
}

var adminAt = regexp.MustCompile(`"admin address is listening","address":"([^"]+)"`)

func (s *served) adminURL(t *testing.T) string {
	t.Helper()
	var found []string
	cmdtest.Until(t, "there is an admin address", func() bool {
		found = adminAt.FindStringSubmatch(s.log.String())
		return found != nil
	})
	return "http://" + found[1]
}

// at is the same process at another of its addresses.
func (s *served) at(url string) *served { return &served{t: s.t, url: url} }

// proxiesRunACommandOnce starts two proxies on the store at u, sends both one
// command, and checks that it ran once and that their logs show the store as
// shown. After restart, unless it is nil, they still replay the response.
func proxiesRunACommandOnce(t *testing.T, u, shown string, restart func() error) {
	t.Helper()
	up := newUpstreamServer(t)
	args := []string{"proxy", "--listen", "127.0.0.1:0", "--upstream", up.URL, "--single-tenant", "--store", u}
	if _, err := command(t, args...); err == nil || !strings.Contains(err.Error(), "run onlyonce migrate") {
		t.Fatalf("before migrate: %v", err)
	}
	if _, err := command(t, "migrate", u); err != nil {
		t.Fatal(err)
	}
	one, other := start(t, args...), start(t, args...)
	first, repeat := one.send("k", "body"), other.send("k", "body")
	if first.status != 201 || repeat.status != 201 || repeat.body != first.body || up.runs() != 1 {
		t.Errorf("%+v, then %+v, %d runs", first, repeat, up.runs())
	}
	one.logs(t, `"store":"`+shown)
	if restart != nil {
		if err := restart(); err != nil {
			t.Fatal(err)
		}
		cmdtest.Until(t, "the proxy replays after a crash of the server", func() bool { return one.send("k", "body").body == first.body })
		if up.runs() != 1 {
			t.Errorf("%d runs", up.runs())
		}
	}
	if strings.Contains(one.log.String(), "s3cret") {
		t.Errorf("the log shows the password: %s", one.log.String())
	}
}

func TestProxy_TheProxysPrintedCurlLinesDoWhatTheySay(t *testing.T) {
	needs.Program(t, "curl")
	t.Parallel()
	for _, tenant := range [][]string{{"--single-tenant"}, {"--tenant-header", "X-Tenant-ID"}, {"--tenant-authorization"}} {
		up := newUpstreamServer(t)
		s := startProxy(t, up.URL, tenant...)
		var got []answer
		for line := range strings.Lines(s.stdout) {
			if strings.HasPrefix(line, "  curl ") {
				got = append(got, curl(t, strings.TrimSpace(line)))
			}
		}
		if len(got) != 3 {
			t.Fatalf("%d curl lines, want 3:\n%s", len(got), s.stdout)
		}
		if got[0].status != 201 || got[0].body != `run 1 of {"n":1}` {
			t.Errorf("once: %+v", got[0])
		}
		if got[1].body != got[0].body || got[1].header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("repeat: %+v", got[1])
		}
		if got[2].status != 422 || up.runs() != 1 {
			t.Errorf("another: %+v after %d runs", got[2], up.runs())
		}
		if !strings.Contains(s.stdout, "loses everything") {
			t.Errorf("that the store forgets is not said:\n%s", s.stdout)
		}
		s.logs(t, "the store is in memory: all records are lost on restart")
	}
}

func TestProxy_TheUpstreamGetsTheKeyTheAttemptAndTheFence(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--single-tenant")
	if got := s.send("k-1", "a", "Idempotency-Fence", "9", "Idempotency-Attempt", "9"); got.status != 201 {
		t.Fatalf("%+v", got)
	}
	h := up.last().Header
	if h.Get("Idempotency-Key") != "k-1" || h.Get("Idempotency-Attempt") != "1" || len(h.Get("Idempotency-Fence")) < 10 {
		t.Errorf("%v", h)
	}
}

func TestProxy_WhatSupervisorsAskIsOnTheAdminAddressOnly(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--single-tenant", "--admin", "127.0.0.1:0")
	admin := s.at(s.adminURL(t))
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if got := admin.probe(path); got.status != 200 || got.body != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/", "/debug/pprof/"} {
		if got := s.get(path); !strings.HasPrefix(got.body, "GET "+path) {
			t.Errorf("%s on the public address was not the upstream's: %+v", path, got)
		}
	}
	if got := admin.get("/things"); got.status != 404 {
		t.Errorf("the admin address passes requests on: %+v", got)
	}
	s.send("k", "a")
	s.send("k", "a")
	s.send("k", "b")
	up.Close()
	if got := s.send("other", "a"); got.status != 503 || !strings.Contains(got.body, "upstream_unreachable") {
		t.Errorf("%+v", got)
	}
	admin.counts(
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="executed"} 1`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="replayed"} 1`,
		`onlyonce_idempotency_requests_total{api="proxy",operation="other",outcome="released"} 1`,
		`onlyonce_idempotency_conflicts_total{api="proxy"} 1`,
		`onlyonce_proxy_rejections_total{code="idempotency_key_reused"} 1`,
		`onlyonce_proxy_upstream_errors_total{kind="unreachable",upstream="main"} 1`,
		`onlyonce_proxy_requests_total{code="2xx"} 7`,
		`onlyonce_proxy_requests_total{code="5xx"} 1`,
		`onlyonce_proxy_active_requests 0`,
	)
}

func TestProxy_TheProxyCountsTheKeyedRequestsThatAreInFlight(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	up.hold = make(chan struct{})
	s := startProxy(t, up.URL, "--single-tenant", "--admin", "127.0.0.1:0")
	admin := s.at(s.adminURL(t))
	admin.counts(`onlyonce_idempotency_active_requests{api="proxy"} 0`)
	got := make(chan answer, 2)
	go func() { got <- s.send("k", "a") }()
	cmdtest.Until(t, "the upstream works", func() bool { return up.runs() == 1 })
	go func() { got <- s.do("POST", "/things", "a") }()
	cmdtest.Until(t, "it works for a request without a key, too", func() bool { return up.runs() == 2 })
	admin.counts(`onlyonce_idempotency_active_requests{api="proxy"} 1`, `onlyonce_proxy_active_requests 2`)
	close(up.hold)
	<-got
	<-got
	admin.counts(`onlyonce_idempotency_active_requests{api="proxy"} 0`, `onlyonce_proxy_active_requests 0`)
}

func TestProxy_TheProxyLogsNoKeysTenantsOrTokens(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--tenant-header", "X-Tenant-ID", "--tenant-header-from", "127.0.0.1")
	for _, body := range []string{"a", "a", "b"} {
		s.send("secret-key", body, "X-Tenant-ID", "secret-tenant", "Authorization", "Bearer secret-token")
	}
	s.logs(t, "idempotency_conflict")
	up.Close()
	s.send("secret-key-2", "a", "X-Tenant-ID", "secret-tenant")
	s.logs(t, "request failed")
	if text := s.log.String(); strings.Contains(text, "secret") {
		t.Errorf("the log tells a secret:\n%s", text)
	}
	id := onlyonce.ID{Tenant: "secret-tenant", Operation: "POST /things", Key: "secret-key"}
	if hash := id.Hash(); !strings.Contains(s.log.String(), fmt.Sprintf("%x", hash[:8])) {
		t.Errorf("the key's hash is not in the log:\n%s", s.log.String())
	}
}

func TestProxy_RunningRequestsGetTheirResponsesWhenTheProxyStops(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	up.hold = make(chan struct{})
	s := startProxy(t, up.URL, "--single-tenant", "--admin", "127.0.0.1:0")
	admin := s.at(s.adminURL(t))
	got := make(chan answer, 1)
	go func() { got <- s.send("k", "a") }()
	cmdtest.Until(t, "the upstream works", func() bool { return up.runs() == 1 })
	s.signal(syscall.SIGTERM)
	cmdtest.Until(t, "the proxy stops", func() bool { return admin.get("/readyz").status == 503 })
	if live := admin.get("/healthz"); live.status != 200 {
		t.Errorf("%+v", live)
	}
	cmdtest.Until(t, "it accepts no more", func() bool { return s.get("/").err != nil })
	close(up.hold)
	if a := <-got; a.status != 201 {
		t.Errorf("%+v", a)
	}
	if state := s.wait(); state.ExitCode() != cli.ExitOK {
		t.Errorf("%v; log:\n%s", state, s.log.String())
	}
}

func TestProxy_TheProxyDeletesWhatHasExpired(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	store := "sqlite:" + filepath.Join(t.TempDir(), "records.db")
	s, _ := startProxyFile(t, up.URL, plainFile+"defaults: {keep: 10ms}\nstore: {purge_every: 10ms}\n", "--admin", "127.0.0.1:0", "--store", store)
	admin := s.at(s.adminURL(t))
	for n := range 3 {
		s.send(fmt.Sprintf("k-%d", n), "a")
		admin.counts(fmt.Sprintf(`onlyonce_cleanup_records_total{store="main"} %d`, n+1))
	}
}

func TestProxy_TheProxysLogIsJSONWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	answered := make(chan struct{})
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		<-answered
		_, _ = io.WriteString(conn, "{\"token\": \"secret-token\"}\r\n\r\n") // which net/http logs by itself
		_, _ = io.Copy(io.Discard, conn)
	}()
	s := startProxy(t, "http://"+ln.Addr().String(), "--single-tenant")
	if got := s.do("GET", "/", "", "TE", "trailers"); got.status != 200 { // a request that net/http sends
		t.Errorf("%+v", got)
	}
	close(answered)
	s.logs(t, "Unsolicited response")
	for line := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if strings.Contains(s.log.String(), "secret-token") {
		t.Errorf("the log has text from the upstream:\n%s", s.log.String())
	}
}
