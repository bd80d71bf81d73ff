package proxy_test

import (
	"bufio"
	"fmt"
	"io"
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

func TestSecurity_BodiesAreBounded(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, counter(&runs))
	addr := serve(t, proxy.New([]proxy.Route{
		{Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: httponce.Config{Tenant: httponce.SingleTenant, MaxBody: 1000}, MaxBody: 2000},
		{Pattern: "/pointed", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: httponce.Config{Tenant: httponce.SingleTenant, MaxBody: 1000}, KeyPointer: "/id"},
	}, proxy.Config{}))
	long := strings.Repeat("x", 2001) // the rest of a body that is rejected has to come, too
	chunked := "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 100) + "0\r\n\r\n"
	for _, request := range []string{
		post11 + "Idempotency-Key: k\r\nContent-Length: 1001\r\n\r\n" + long[:1001],
		post11 + "Idempotency-Key: k\r\nContent-Length: 999999999999999\r\n\r\n",
		post11 + "Idempotency-Key: k\r\n" + chunked,
		post11 + "Content-Length: 2001\r\n\r\n" + long,
		post11 + chunked,
		"POST /pointed HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n" + long[:1001],
		"POST /pointed HTTP/1.1\r\nHost: h\r\n" + chunked,
	} {
		if response := exchange(t, addr, request, len(request)); !strings.HasPrefix(response, "HTTP/1.1 413 ") || !strings.Contains(response, "body_too_large") {
			t.Errorf("%.100q: %q", request, response)
		}
	}
	if response := exchange(t, addr, post11+chunked, len(post11+chunked)); strings.Contains(response, "Nothing was done") {
		t.Errorf("of a body whose beginning the upstream has got: %q", response)
	}
	if n := runs.Load(); n > 2 { // of one that passes, the upstream may see a part
		t.Errorf("%d runs", n)
	}
	res, body := post(t, addr, "k", strings.Repeat("x", 1000))
	wantResponse(t, res, body, 201, "attempt 1")
	res, body = post(t, addr, "", strings.Repeat("x", 2000))
	wantResponse(t, res, body, 201, "attempt ,")
}

func TestSecurity_ABombIsNotDecompressed(t *testing.T) {
	var lengths atomic.Int64
	bomb := strings.Repeat("\x1f\x8b bomb", 100)
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		lengths.Add(n)
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, bomb)
	}), onlyonce.Config{}, nil)
	for _, key := range []string{"k", ""} {
		h := http.Header{"Content-Encoding": {"gzip"}, "Accept-Encoding": {"gzip"}}
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
		if _, body := send(t, "POST", "http://"+addr+"/v1/orders", h, bomb); body != bomb {
			t.Errorf("key %q: the response is %d bytes", key, len(body))
		}
	}
	if lengths.Load() != int64(2*len(bomb)) {
		t.Errorf("the upstream got %d bytes", lengths.Load())
	}
}

func TestSecurity_ASlowBodyEnds(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			runs.Add(1)
		}
	})
	addr := serve(t, proxy.New([]proxy.Route{{Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single}, {
		Pattern: "/pointed", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single, KeyPointer: "/id",
	}}, proxy.Config{BodyTimeout: 50 * time.Millisecond}))
	for _, head := range []string{post11 + "Idempotency-Key: k\r\n", post11, "POST /pointed HTTP/1.1\r\nHost: h\r\n"} {
		for _, body := range []string{"Content-Length: 10\r\n\r\n", "Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nha"} {
			if response := exchange(t, addr, head+body, 1000); !strings.HasPrefix(response, "HTTP/1.1 400 ") || !strings.Contains(response, "body_unreadable") {
				t.Errorf("%q: %q", head+body, response)
			}
		}
	}
	if runs.Load() > 0 {
		t.Errorf("%d runs", runs.Load())
	}
	for _, head := range []string{"POST /none HTTP/1.1\r\nHost: h\r\n", post11 + "Connection: cookie\r\n", post11 + "Idempotency-Key: ,\r\n"} { // nor does one that nobody reads stay
		if response := exchange(t, addr, head+"Content-Length: 10\r\n\r\n", 1000); !strings.HasPrefix(response, "HTTP/1.1 4") {
			t.Errorf("%q: %q", head, response)
		}
	}
}

// A lenient writer notes until when the request may be read, and allows any time.
type lenient struct {
	http.ResponseWriter
	until atomic.Pointer[time.Time]
}

func (w *lenient) SetReadDeadline(t time.Time) error {
	w.until.Store(&t)
	return nil
}

func (w *lenient) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestSecurity_ADrippingBodyEndsIfItIsKept(t *testing.T) {
	const limit = 500 * time.Millisecond
	p := proxy.New([]proxy.Route{{
		Pattern: "/v1/orders", Upstream: upstream(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), Guard: newGuard(onlyonce.Config{}), Idempotency: single,
	}}, proxy.Config{BodyTimeout: limit})
	drip := func(key string, h http.Handler, enough func() bool) string {
		c := dial(t, serve(t, h))
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, post11+key+"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
		go func() {
			for ; !enough(); time.Sleep(10 * time.Millisecond) {
				if _, err := io.WriteString(c, "1\r\nx\r\n"); err != nil {
					return
				}
			}
			io.WriteString(c, "0\r\n\r\n")
		}()
		response, _ := bufio.NewReader(c).ReadString('\n')
		return response
	}
	if response := drip("Idempotency-Key: k\r\n", p, func() bool { return false }); !strings.HasPrefix(response, "HTTP/1.1 400 ") {
		t.Errorf("kept: %q", response)
	}
	var last atomic.Pointer[lenient]
	began := time.Now()
	response := drip("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := &lenient{ResponseWriter: w}
		last.Store(made)
		p.ServeHTTP(made, r)
	}), func() bool { // each byte has its time, and so all of them more than that
		w := last.Load()
		return w != nil && w.until.Load() != nil && w.until.Load().Sub(began) > 2*limit
	})
	if !strings.HasPrefix(response, "HTTP/1.1 200 ") {
		t.Errorf("passed: %q", response)
	}
}

func TestSecurity_WhatComesInTimeIsNotEnded(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	short, long := `{"a":1}`, `{"a":"`+strings.Repeat("x", 100<<10)+`"}`
	requests := []struct{ path, key, body string }{
		{"/v1/orders", "", short}, {"/v1/orders", "", long}, {"/v1/orders", "a", short}, {"/v1/orders", "b", long}, {"/pointed", "", short}, {"/pointed", "", long}, {"/pointed", "c", long},
	}
	came, end := make(chan bool, 2*len(requests)), make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		came <- true
		<-end
		fmt.Fprint(w, n)
	})
	p := proxy.New([]proxy.Route{
		{Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single},
		{Pattern: "/pointed", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single, KeyPointer: "/id"},
	}, proxy.Config{BodyTimeout: limit})
	sent := make(chan bool)
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-sent // all of its body, when its time begins
		p.ServeHTTP(w, r)
	}))
	var all sync.WaitGroup
	for i, r := range requests {
		c := dial(t, addr)
		c.SetDeadline(time.Now().Add(patience))
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n", r.path, len(r.body))
		if r.key != "" {
			head += "Idempotency-Key: " + r.key + "\r\n"
		}
		io.WriteString(c, head+"\r\n"+r.body)
		all.Go(func() {
			defer func() { came <- true }() // also one that is rejected
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			if body, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(body) != fmt.Sprint(len(r.body)) {
				t.Errorf("%d: %d %s", i, res.StatusCode, body)
			}
		})
	}
	close(sent)
	for range requests {
		<-came
	}
	time.Sleep(limit * 9 / 8) // longer than a body may take, which has come to its end
	close(end)
	all.Wait()
}
