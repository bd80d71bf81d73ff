package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// The tests named TestSecurity_… each hold an attack of docs/security.md. What must be
// rejected is sent as raw bytes.

func TestSecurity_ALongHeaderIsRejected(t *testing.T) {
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") }), onlyonce.Config{}, nil)
	for _, raw := range []string{
		get11 + "X: " + strings.Repeat("x", 40<<10) + "\r\n\r\n",
		get11 + strings.Repeat("X: x\r\n", 10_000) + "\r\n",
		get11 + strings.Repeat("a:\r\n", 1000) + "\r\n", // the 1001st field is one too many
		"GET /" + strings.Repeat("x", 40<<10) + " HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		if response := exchange(t, addr, raw, len(raw)); !strings.HasPrefix(response, "HTTP/1.1 4") {
			t.Errorf("%.40q: %q", raw, response)
		}
	}
	if s := proxy.Server(nil); s.ReadHeaderTimeout != 5*time.Second || s.MaxHeaderBytes != 32<<10 || s.IdleTimeout == 0 {
		t.Error("the server's limits")
	}
}

func TestSecurity_ASlowHeaderEnds(t *testing.T) {
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) {})}}, proxy.Config{})
	s := proxy.Server(p)
	s.ReadHeaderTimeout = 50 * time.Millisecond
	l := listen(t)
	defer s.Close()
	go s.Serve(proxy.Listen(l, nil))
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if response := exchange(t, l.Addr().String(), "GET / HTTP/1.1\r\nX: ", 5); strings.HasPrefix(response, "HTTP/1.1 2") {
				t.Error(response)
			}
		})
	}
	all.Wait()
}

func TestSecurity_WaitersAreBounded(t *testing.T) {
	end := make(chan struct{})
	var runs atomic.Int32
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) { runs.Add(1); <-end }),
		onlyonce.Config{Wait: time.Minute, MaxWaitersPerID: 1}, nil)
	responses := make(chan int, 10)
	for range 10 {
		go func() {
			res, _ := post(t, addr, "k", "x")
			responses <- res.StatusCode
		}()
	}
	for range 8 { // one runs, one waits
		if status := <-responses; status != 409 {
			t.Errorf("status %d", status)
		}
	}
	close(end)
	if a, b := <-responses, <-responses; a != 200 || b != 200 || runs.Load() != 1 {
		t.Errorf("%d %d, %d runs", a, b, runs.Load())
	}
}

func TestSecurity_NewKeysAreBounded(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency = httponce.Config{Tenant: byTenant, MaxNewKeys: 2}
	})
	for i := range 3 {
		res, body := send(t, "POST", "http://"+addr+"/v1/orders", keyed("a", fmt.Sprint(i)), "x")
		if i < 2 {
			wantResponse(t, res, body, 201, "")
			continue
		}
		wantProblem(t, res, body, 429, "too_many_requests", true)
	}
	res, body := send(t, "POST", "http://"+addr+"/v1/orders", keyed("b", "0"), "x")
	wantResponse(t, res, body, 201, "run 3")
}
