package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// seen is an upstream that records its requests, by the first segment of the path.
type seen struct {
	mu       sync.Mutex
	requests map[string][]string
}

func (s *seen) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.RequestURI, "/"), "/")
	rest = strings.ReplaceAll(rest, "%2f", "%2F") // equal by RFC 3986, section 6.2.2.1
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.requests[id] = append(s.requests[id], fmt.Sprintf("%s %s %q %q", r.Method, rest, body, r.Header["Idempotency-Key"]))
	}
}

func (s *seen) by(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.requests[id], "; ")
}

// startNginx starts nginx as a reverse proxy, and returns its address.
func startNginx(t *testing.T, upstream string) string {
	t.Helper()
	bin := needs.Program(t, "nginx")
	dir := t.TempDir()
	addr := "127.0.0.1:" + testserver.FreePort()
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log; events {}
http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
server { listen %[2]s; location / { proxy_pass %[3]s; proxy_http_version 1.1; } } }`, dir, addr, upstream)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-c", file, "-p", dir, "-e", filepath.Join(dir, "error.log"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no state
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(answerLimit); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return addr
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			t.Fatalf("nginx does not listen: %s", log)
		}
	}
}

// sayRaw sends raw bytes, and waits until the connection is closed: the last
// request asks for that, and what is rejected is cut off.
func sayRaw(addr, raw string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerLimit))
	_, _ = io.WriteString(c, raw)
	_, _ = io.Copy(io.Discard, c) // as much as comes
	return nil
}

// ambiguities are all combinations of parts of requests that are often read in two
// ways, each followed by another request; # stands for an ID.
func ambiguities() (all []string) {
	lines := []string{"POST /#/a HTTP/1.1\r\n", "POST /#/a HTTP/1.0\r\n", "POST /#/a%2fb?c HTTP/1.1\r\n", "POST http://h/#/a HTTP/1.1\r\n", "POST /#/a HTTP/1.1\n", "POST  /#/a HTTP/1.1\r\n"}
	lengths := []string{
		"", "Content-Length: 5\r\n", "Content-Length : 5\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 05\r\n", "Content-Length: +5\r\n",
		"Content-Length: 5, 5\r\n", "Content-Length: 5\n", "X: y\r\n Content-Length: 5\r\n", "Content_Length: 5\r\n", "Content-Length: 5\x00\r\n", "content-length: 5 \r\n",
	}
	codings := []string{
		"", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding:\r\n chunked\r\n",
		"transfer-encoding:Chunked\r\n", "Transfer-Encoding : chunked\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Transfer_Encoding: chunked\r\n", "Idempotency-Key: k\r\n", "Idempotency-Key: a\r\n b\r\n",
	}
	bodies := []string{"", "5\r\nhello\r\n0\r\n\r\n", "hello", "0\r\n\r\n", "5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n", "5\nhello\n0\n\n"}
	for _, line := range lines {
		for _, length := range lengths {
			for _, coding := range codings {
				for _, body := range bodies {
					all = append(all, line+"Host: h\r\n"+length+coding+"\r\n"+body+"GET /#/next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				}
			}
		}
	}
	return all
}

// TestProxy_TheProxyLetsThroughNoMoreThanNginx holds that what the proxy lets through,
// nginx lets through as the same requests.
func TestProxy_TheProxyLetsThroughNoMoreThanNginx(t *testing.T) {
	s := &seen{requests: map[string][]string{}}
	upstream := httptest.NewServer(s)
	defer upstream.Close()
	nginx := startNginx(t, upstream.URL)
	u, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := proxy.Server(proxy.New([]proxy.Route{{Pattern: "/", Upstream: &proxy.Upstream{URL: u}}}, proxy.Config{}))
	defer server.Close()
	go server.Serve(proxy.Listen(l, nil))

	var passed, rejected atomic.Int32
	var all sync.WaitGroup
	room := make(chan bool, 64)
	for i, raw := range ambiguities() {
		room <- true
		all.Go(func() {
			defer func() { <-room }()
			id := fmt.Sprint("ours", i)
			if err := sayRaw(l.Addr().String(), strings.ReplaceAll(raw, "#", id)); err != nil {
				t.Error(err)
			}
			ours := s.by(id)
			if ours == "" {
				rejected.Add(1)
				return
			}
			passed.Add(1)
			id = fmt.Sprint("theirs", i)
			for try := 0; !strings.HasPrefix(s.by(id), ours); try++ {
				if try == 3 {
					t.Errorf("%q\n is for us   %s\n for nginx %s", raw, ours, s.by(id))
					return
				}
				id = fmt.Sprint("theirs", i, "-", try)
				if err := sayRaw(nginx, strings.ReplaceAll(raw, "#", id)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if p, r := passed.Load(), rejected.Load(); p < 100 || r < 1000 {
		t.Errorf("%d passed, %d rejected: the parts are badly chosen", p, r)
	}
}
