package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestServe_ThePrintedCurlLinesDoWhatTheySay(t *testing.T) {
	needs.Program(t, "curl")
	t.Parallel()
	s := startServe(t, t.TempDir())
	var got []answer
	for line := range strings.Lines(s.stdout) {
		if strings.HasPrefix(line, "  curl ") {
			got = append(got, curl(t, strings.TrimSpace(line)))
		}
	}
	if len(got) != 6 {
		t.Fatalf("%d curl lines, want 6:\n%s", len(got), s.stdout)
	}
	create, repeat, conflict := got[0], got[1], got[2]
	if create.status != 201 || create.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("create: %+v", create)
	}
	if repeat.status != 201 || repeat.header.Get("Idempotency-Replayed") != "true" || repeat.body != create.body {
		t.Errorf("repeat: %+v, want the replay of %+v", repeat, create)
	}
	if conflict.status != 409 || !strings.Contains(conflict.body, "IDEMPOTENCY_KEY_CONFLICT") {
		t.Errorf("conflict: %+v", conflict)
	}
	order, reused, list := got[3], got[4], got[5]
	if order.status != 201 || !strings.Contains(order.body, `"total":"39.80"`) {
		t.Errorf("order: %+v", order)
	}
	if reused.status != 422 || !strings.Contains(reused.body, "idempotency_key_reused") {
		t.Errorf("another order: %+v", reused)
	}
	if list.status != 200 || strings.Count(list.body, "ord_") != 1 {
		t.Errorf("orders: %+v", list)
	}
}

// curl runs a printed line in a shell.
func curl(t *testing.T, line string) answer {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(out), nil)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return answer{resp.StatusCode, resp.Header, string(body), nil}
}

func TestServe_EveryStartPrintsAnotherKey(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first, second := startServe(t, data), startServe(t, data) // two servers may share a store, too
	key := func(s *served) string {
		_, rest, _ := strings.Cut(s.stdout, "Idempotency-Key: ")
		key, _, _ := strings.Cut(rest, "'")
		return key
	}
	if key(first) == "" || key(first) == key(second) {
		t.Errorf("keys %q and %q", key(first), key(second))
	}
}

func TestServe_TheDataDirectoryIsPrivateAndHoldsTheStore(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "new", "data")
	startServe(t, data)
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	if perm := info.Mode().Perm(); perm != 0o700 {
		t.Errorf("mode %v", perm)
	}
	if _, err := os.Stat(filepath.Join(data, "onlyonce.db")); err != nil {
		t.Error(err)
	}
}

func TestServe_TheStoreMayHaveAnOddName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a b?mode=memory#%20.db")
	s := startServe(t, dir, "--store", "sqlite:"+path)
	if got := s.post("k", "Lamp"); got.status != 201 {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestServe_TheLogIsJSONOnStandardErrorWithoutKeysOfCallers(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	s.post("secret-key", "Lamp")
	s.post("secret-key", "Lamp")
	s.post("secret-key", "Other lamp")
	cmdtest.Until(t, "the conflict is logged", func() bool { return strings.Contains(s.log.String(), `"idempotency_conflict"`) })
	text := s.log.String()
	if !strings.Contains(text, `"event":"idempotency_hit"`) {
		t.Errorf("no hit is logged:\n%s", text)
	}
	if strings.Contains(text, "secret-key") {
		t.Errorf("a key is logged:\n%s", text)
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

func TestServe_WithATokenFileEveryCallerNeedsAToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	hash := sha256.Sum256([]byte("s3cret"))
	old := sha256.Sum256([]byte("old"))
	if err := os.WriteFile(file, fmt.Appendf(nil, "# %x\nalice %x\n", old, hash), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, t.TempDir(), "--tokens", file)
	for _, path := range []string{"/api/v1/items", "/v1/sandboxes", "/orders"} {
		for header, want := range map[string]int{
			"":              401,
			"Bearer wrong":  401,
			"Bearer old":    401,
			"Basic s3cret":  401,
			"Bearer s3cret": 200,
		} {
			var h []string
			if header != "" {
				h = []string{"Authorization", header}
			}
			if got := s.get(path, h...); got.status != want {
				t.Errorf("%s with %q: %d %s, want %d", path, header, got.status, got.body, want)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if got := s.probe(path); got.status != 200 {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if !strings.Contains(s.stdout, "Bearer $TOKEN") {
		t.Errorf("the curl lines have no token:\n%s", s.stdout)
	}
}

// writeTokens writes a file in which every owner has the token "OWNER-secret".
func writeTokens(t *testing.T, owners ...string) (file string) {
	t.Helper()
	var text []byte
	for _, owner := range owners {
		text = fmt.Appendf(text, "%s %x\n", owner, sha256.Sum256([]byte(owner+"-secret")))
	}
	file = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSecurity_OwnersOfTokensDoNotGetEachOthersResponses(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--tokens", writeTokens(t, "alice", "bob", "single", "anonymous"), "--allow-anonymous")
	post := func(header ...string) answer {
		header = append(header, "Idempotency-Key", "k")
		return s.do("POST", "/api/v1/items", `{"sku":"S-1","title":"Lamp","status":"active"}`, header...)
	}
	seen := map[string]string{}
	for _, auth := range []string{"", "Bearer alice-secret", "Bearer bob-secret", "Bearer single-secret", "Bearer anonymous-secret"} {
		var header []string
		if auth != "" {
			header = []string{"Authorization", auth}
		}
		first, again := post(header...), post(header...)
		if first.status != 201 || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%q got %+v, then %+v", auth, first, again)
		}
		if other, twice := seen[first.body]; twice {
			t.Errorf("%q got the response of %q: %s", auth, other, first.body)
		}
		seen[first.body] = auth
	}
	if got := post("Authorization", "Bearer wrong"); got.status != 401 {
		t.Errorf("a wrong token: %+v", got)
	}
}

func TestSecurity_ARevokedTokenLeavesNothingToCallersWithoutAToken(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	data, tokens := t.TempDir(), writeTokens(t, "alice")
	s := startServe(t, data, "--tokens", tokens, "--allow-anonymous")
	for path, body := range map[string]string{"/v1/sandboxes": `{}`, "/orders": oneOrder} {
		if got := s.do("POST", path, body, "Idempotency-Key", "k", "Authorization", "Bearer alice-secret"); got.status != 201 {
			t.Fatalf("%s: %+v", path, got)
		}
	}
	s.signal(os.Interrupt)
	s.wait()
	if err := os.WriteFile(tokens, []byte("alice revoked\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = startServe(t, data, "--tokens", tokens, "--allow-anonymous")
	for path, header := range map[string]string{"/v1/sandboxes": "X-Owner", "/orders": "X-Tenant-ID"} {
		for _, as := range [][]string{{header, "alice"}, {"Authorization", "Bearer alice-secret"}} {
			if got := s.do("GET", path, "", as...); got.status != 401 {
				t.Errorf("%s as %s: %+v", path, as, got)
			}
		}
	}
}

// An operator introduces tokens, and lets callers without one go on for now.
func TestServe_TheKeysOfAnonymousCallersStayValidWhenTokensAreIntroduced(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	data := t.TempDir()
	commands := map[string]string{"/api/v1/items": `{"sku":"S-1","title":"Lamp","status":"active"}`, "/v1/sandboxes": `{}`, "/orders": oneOrder}
	first := make(map[string]string)
	s := startServe(t, data)
	for path, body := range commands {
		first[path] = s.do("POST", path, body, "Idempotency-Key", "k").body
	}
	s.signal(os.Interrupt)
	s.wait()
	s = startServe(t, data, "--tokens", writeTokens(t, "alice"), "--allow-anonymous")
	for path, body := range commands {
		if got := s.do("POST", path, body, "Idempotency-Key", "k"); got.body != first[path] || got.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: the repeat gets %+v, the first request got %s", path, got, first[path])
		}
	}
}

func TestServe_AllInterfacesAreServedAnonymouslyOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--listen", ":0", "--allow-anonymous-beyond-loopback")
	if !strings.HasPrefix(s.url, "http://127.0.0.1:") {
		t.Errorf("url %s", s.url)
	}
	if got := s.get("/healthz"); got.status != 200 {
		t.Errorf("%+v", got)
	}
}

func TestSecurity_AClientThatSendsItsHeaderSlowlyIsCutOff(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /api/v1/items HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(cmdtest.Soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes it
		t.Fatal(err)
	}
}

func TestSecurity_AHeaderIsLimited(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(cmdtest.Soon)); err != nil {
		t.Fatal(err)
	}
	// Not a byte more than net/http reads: what it leaves unread makes the system
	// drop the response.
	const slop = 4096
	head := "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Large: "
	if _, err := io.WriteString(conn, head+strings.Repeat("x", proxy.MaxHeaderBytes+slop-len(head))); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s", resp.Status)
	}
}

func TestServe_WithoutAWaitTheRepeatOfARunningCommandIsRejectedAtOnce(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--wait", "0")
	release := holdWriter(t, s.data)
	defer release()
	answers := make(chan answer, 2)
	for range 2 {
		go func() { answers <- s.do("POST", "/v1/sandboxes", "", "Idempotency-Key", "k") }()
	}
	if got := <-answers; got.status != 409 || !strings.Contains(got.body, "request_in_progress") {
		t.Errorf("%+v", got)
	}
	if text := s.get("/metrics").body; strings.Contains(text, `outcome="waited"`) {
		t.Error("it waited")
	}
	release()
	if got := <-answers; got.status != 201 {
		t.Errorf("the one that ran got %+v", got)
	}
}

func TestServe_APageOfAnotherOriginCannotWrite(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	for _, path := range []string{"/v1/sandboxes", "/api/v1/items", "/orders"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://example.org")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s: %s", path, resp.Status)
		}
	}
}
