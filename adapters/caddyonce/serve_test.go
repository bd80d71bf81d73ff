package caddyonce

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/conform"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestServe_AServerInAnotherLanguagePassesEveryRowBehindIt(t *testing.T) {
	for program, file := range map[string]string{"python3": "python/orders.py", "node": "node/orders.mjs"} {
		t.Run(program, func(t *testing.T) {
			port := testserver.FreePort()
			upstream := exec.Command(needs.Program(t, program), file, port)
			upstream.Dir = "../../docs/examples"
			if err := upstream.Start(); err != nil {
				t.Fatal(err)
			}
			end := func() {
				_ = upstream.Process.Kill() // it has no state
				_ = upstream.Wait()
			}
			t.Cleanup(end)
			until(t, "it listens", func() bool {
				conn, err := net.Dial("tcp", "127.0.0.1:"+port)
				if err == nil {
					conn.Close()
				}
				return err == nil
			})
			s := newSite(t)
			s.serve(`onlyonce {
				store ` + s.store + `
				tenant {http.request.header.X-Account}
				unknown hold
				wait 30s
			}
			reverse_proxy 127.0.0.1:` + port)
			conform.Test(t, conform.Target{
				URL: s.url() + "/orders", OtherURL: "/returns",
				Header: http.Header{"X-Account": {"7"}}, Other: http.Header{"X-Account": {"8"}},
				Body: []byte(`{"item":"lamp"}`), Fresh: "/item",
			}, conform.Config{})
			first := s.post("kept", `{"item":"lamp"}`, "X-Account", "7")
			s.want(first, 201, `"lamp"`, false)
			end()
			s.want(s.post("kept", `{"item":"lamp"}`, "X-Account", "7"), 201, first.body, true)
			s.want(s.post("other", `{"item":"lamp"}`, "X-Account", "7"), 502, "", false)
		})
	}
}

func TestReload_LosesNoCommandInFlight(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-goOn
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
	}))
	t.Cleanup(up.Close)
	proxy := "reverse_proxy " + strings.TrimPrefix(up.URL, "http://")
	s := newSite(t)
	replies := make(chan reply, 2)
	send := func(key string) {
		got, err := s.send(http.MethodPost, "/orders", "a", "Idempotency-Key", key)
		if err != nil {
			t.Error(err)
		}
		replies <- got
	}
	s.serve(s.once() + proxy)
	go send("k")
	<-arrived
	s.serve(s.once("wait 1m", "docs_url https://example.com/") + proxy) // the same store
	s.want(s.post("k", "b"), 422, "idempotency_key_reused", false)
	go send("k") // waits
	goOn <- struct{}{}
	first, second := <-replies, <-replies
	if first.replayed() {
		first, second = second, first
	}
	s.want(first, 201, "made", false)
	s.want(second, 201, "made", true)

	go send("k2")
	<-arrived
	var store *pooled
	stores.Range(func(_, value any) bool { store = value.(*pooled); return false })
	closed := make(chan struct{})
	closes := store.close
	store.close = func() error { defer close(closed); return closes() }
	s.serve("respond gone 410") // without it
	s.want(s.post("k2", "a"), 410, "gone", false)
	select {
	case <-closed:
		t.Error("the store was closed under a request")
	default:
	}
	goOn <- struct{}{}
	s.want(<-replies, 201, "made", false)
	<-closed
	s.serve(s.once() + "respond again 201")
	s.want(s.post("k2", "a"), 201, "made", true)
}

func TestReload_AConfigurationThatIsRejectedLeavesTheStoreOpen(t *testing.T) {
	s := newSite(t)
	s.serve(s.once() + "respond made 201")
	if err := load(t, s.caddyfile(s.once("fingerprint json", "fingerprint_fields wrong"))); err == nil {
		t.Fatal("it was accepted")
	}
	s.want(s.post("k", "a"), 201, "made", false)
	s.want(s.post("k", "a"), 201, "made", true)
}

func TestServe_LogsAndMetricsAreCaddys(t *testing.T) {
	s := newSite(t)
	s.serve("handle /orders {\n" + s.once() + "respond made 201\n}\nhandle /returns {\n" + s.once("operation return") + "respond made 201\n}\nmetrics /metrics")
	s.post("k", "a")
	s.post("k", "a")
	s.want(s.post("k", "b"), 422, "", false)
	if _, err := s.send(http.MethodPost, "/returns", "a", "Idempotency-Key", "k"); err != nil {
		t.Fatal(err)
	}
	got, err := s.send(http.MethodGet, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`operation="POST /orders",outcome="replayed"} 1`, `operation="return",outcome="executed"} 1`, "onlyonce_idempotency_unresolved{"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the metrics lack %s:\n%s", want, got.body)
		}
	}
	text, err := os.ReadFile(s.log)
	if err != nil || !strings.Contains(string(text), "idempotency_conflict") || !strings.Contains(string(text), "http.handlers.onlyonce") {
		t.Errorf("the log is %s, %v", text, err)
	}
}

func TestServe_RequestsWithoutAKeyPassUnlessItIsRequired(t *testing.T) {
	s := newSite(t)
	s.serve(s.once() + "respond made 201")
	for range 2 {
		got, err := s.send(http.MethodPost, "/orders", "a")
		if err != nil {
			t.Fatal(err)
		}
		s.want(got, 201, "made", false)
	}
	s.serve(s.once("required", "docs_url https://example.com/") + "respond made 201")
	got, err := s.send(http.MethodPost, "/orders", "a")
	if err != nil {
		t.Fatal(err)
	}
	if s.want(got, 400, "idempotency_key_missing", false); got.header.Get("Content-Type") != "application/problem+json" || got.header.Get("Link") == "" {
		t.Errorf("the header is %v", got.header)
	}
	wantState(t, "")
}

func TestServe_ABodyThatIsTooLongIsRejected(t *testing.T) {
	s := newSite(t)
	s.serve("request_body {\nmax_size 10\n}\n" + s.once() + "respond made 201")
	s.want(s.post("k", strings.Repeat("a", 20)), 413, "", false)
	s.serve(s.once("max_body 10", "max_response 3") + "respond made 201")
	s.want(s.post("k", strings.Repeat("a", 20)), 413, "body_too_large", false)
	wantState(t, "")
	s.want(s.post("k", "a"), 201, "made", false)
	if got := s.post("k", "a"); got.body != "" || got.header.Get("Idempotency-Replay") != "omitted" {
		t.Errorf("the repeat is %v %q", got.header, got.body)
	}
}

func TestServe_ACommandWhoseClientHasGoneIsFinished(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-goOn
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(up.Close)
	s := newSite(t)
	s.serve(s.once() + "reverse_proxy " + strings.TrimPrefix(up.URL, "http://"))
	conn, err := net.Dial("tcp", "127.0.0.1:"+s.port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: "+s.host+"\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\na"); err != nil {
		t.Fatal(err)
	}
	<-arrived
	conn.Close()
	close(goOn)
	until(t, "it is recorded", func() bool {
		list := records(t)
		return len(list) == 1 && list[0].State == onlyonce.StateCompleted
	})
	s.want(s.post("k", "a"), 201, "", true)
}

func TestServe_TheExampleWorks(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"charge":1,"amount":5}`)
	}))
	t.Cleanup(up.Close)
	text, err := os.ReadFile("example/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	t.Setenv("CHARGES", filepath.Join(t.TempDir(), "charges.db"))
	t.Setenv("UPSTREAM", strings.TrimPrefix(up.URL, "http://"))
	if err := load(t, strings.Replace(string(text), ":8080", ":"+s.port, 1)); err != nil {
		t.Fatal(err)
	}
	adaptertest.RunExampleAt(t, strings.Replace(s.url(), "127.0.0.1", "localhost", 1)) // as in the documented command
}
