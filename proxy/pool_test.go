package proxy_test

import (
	"context"
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

func TestPool_AConnectionIsReusedOnlyAfterACompleteResponse(t *testing.T) {
	const length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	for name, c := range map[string]struct {
		response string
		again    bool
	}{
		"a length":               {length, true},
		"chunked":                {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n", true},
		"no body":                {"HTTP/1.1 204 No Content\r\n\r\n", true},
		"an error of theirs":     {"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", true},
		"interim":                {"HTTP/1.1 103 Early Hints\r\n\r\n" + length, true},
		"it says close":          {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", false},
		"HTTP/1.0":               {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", false},
		"more than the response": {length + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", false},
		"half of another":        {length + "H", false},
		"malformed":              {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, requests, conns := scripted(t, func(int, *http.Request) (string, bool) { return c.response, true })
			up.KeepIdle = time.Minute
			addr := orders(t, up, onlyonce.Config{}, nil)
			for i := range 3 {
				if _, body := post(t, addr, fmt.Sprint(i), "x"); strings.Contains(body, "poison") {
					t.Errorf("request %d got %q", i, body)
				}
			}
			if n := conns.Load(); requests.Load() != 3 || (n == 1) != c.again || n != 1 && n != 3 {
				t.Errorf("%d requests over %d connections", requests.Load(), n)
			}
		})
	}
}

func TestPool_AConnectionThatTheUpstreamHasClosedIsNotUsed(t *testing.T) {
	up, requests, conns := scripted(t, func(n int, _ *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false // it closes, and does not say so
	})
	up.KeepIdle = time.Minute
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
	for i := range 20 {
		res, body := post(t, addr, fmt.Sprint(i), "x")
		if res.StatusCode == 502 { // it was closed between the look and the write: nobody knows, and it was not sent again
			wantProblem(t, res, body, 502, "upstream_failed", false)
			continue
		}
		wantResponse(t, res, body, 200, "hi")
	}
	if r, c := requests.Load(), conns.Load(); r > 20 || c > 21 {
		t.Errorf("%d requests over %d connections", r, c)
	}
}

func TestPool_AResponseToHalfARequestCountsAndEndsItsConnection(t *testing.T) {
	t.Parallel()
	l := listen(t)
	ended, rest := make(chan bool, 1), make(chan bool)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				if _, err := io.ReadFull(c, make([]byte, 20)); err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
				<-rest
				io.Copy(io.Discard, c)
				ended <- true
			}()
		}
	}()
	up := &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String()), StallTimeout: 2 * time.Second, KeepIdle: time.Minute}
	once := single
	once.MaxBody = 64 << 20
	addr := serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: once}}, proxy.Config{BodyTimeout: time.Hour}))
	large := strings.Repeat("x", 16<<20) // more than the connection holds
	res, body := post(t, addr, "k", large)
	wantResponse(t, res, body, 413, "no")
	close(rest)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the connection stays open, for another request behind half of one")
	}
}

func TestPool_UnsolicitedBytesAreNotTakenForAResponse(t *testing.T) {
	said := make(chan bool)
	up, _, conns := scripted(t, func(n int, r *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true
	})
	up.KeepIdle = time.Minute
	l := listen(t)
	go func() { // passes bytes on to the upstream, and adds a response of its own behind the first
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go relay(c, up.URL.Host, first, said)
		}
	}()
	addr := orders(t, &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String()), KeepIdle: time.Minute}, onlyonce.Config{}, nil)
	for i := range 3 {
		res, body := post(t, addr, fmt.Sprint(i), "x")
		wantResponse(t, res, body, 200, "hi")
		if i == 0 {
			<-said
		}
	}
	if conns.Load() != 2 {
		t.Errorf("%d connections", conns.Load())
	}
}

func TestPool_IdleConnectionsAreClosedInTime(t *testing.T) {
	closed := make(chan bool, 1)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	l := listen(t)
	go func() {
		c, err := l.Accept()
		if err == nil {
			relay(c, up.URL.Host, false, nil)
			closed <- true
		}
	}()
	addr := orders(t, &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String()), KeepIdle: 10 * time.Millisecond}, onlyonce.Config{}, nil)
	res, body := post(t, addr, "k", "x")
	wantResponse(t, res, body, 200, "x")
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("the connection stays open")
	}
}

func TestPool_ReloadLetsWhatIsUnderWayEnd(t *testing.T) {
	var old, now atomic.Int32
	began, end := make(chan bool), make(chan bool)
	first := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if old.Add(1) == 1 {
			began <- true
			<-end
		}
		io.WriteString(w, "old")
	})
	second := upstream(t, func(w http.ResponseWriter, r *http.Request) { now.Add(1); io.WriteString(w, "new") })
	guard := newGuard(onlyonce.Config{})
	route := func(up *proxy.Upstream) []proxy.Route {
		return []proxy.Route{{Pattern: "/", Upstream: up, Guard: guard, Idempotency: single}}
	}
	p := proxy.New(route(first), proxy.Config{})
	addr := serve(t, p)
	response := make(chan string)
	go func() {
		_, body := post(t, addr, "k", "x")
		response <- body
	}()
	<-began
	p.Reload(route(second), proxy.Config{})
	if _, body := post(t, addr, "l", "x"); body != "new" {
		t.Errorf("%q", body)
	}
	end <- true
	if body := <-response; body != "old" {
		t.Errorf("%q", body)
	}
	if _, body := post(t, addr, "k", "x"); body != "old" || now.Load() != 1 {
		t.Errorf("%q", body)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a reload that makes no sense is taken")
			}
		}()
		p.Reload(nil, proxy.Config{})
	}()
	if _, body := post(t, addr, "m", "x"); body != "new" {
		t.Errorf("after a reload that was rejected: %q", body)
	}
	p.Close()
	if _, body := post(t, addr, "n", "x"); body != "new" {
		t.Errorf("after Close: %q", body)
	}
}

func TestPool_AConnectionToAnUpstreamThatIsGoneIsClosedAfterItsResponse(t *testing.T) {
	began, end, closed := make(chan bool), make(chan bool), make(chan bool, 1)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		began <- true
		<-end
	})
	up.KeepIdle = time.Hour
	l := listen(t)
	go func() {
		if c, err := l.Accept(); err == nil {
			relay(c, up.URL.Host, false, nil)
			closed <- true
		}
	}()
	through := &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String()), KeepIdle: time.Hour}
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: through, Guard: newGuard(onlyonce.Config{}), Idempotency: single}}, proxy.Config{})
	addr := serve(t, p)
	responded := make(chan bool)
	go func() {
		post(t, addr, "k", "x")
		responded <- true
	}()
	<-began
	p.Reload([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{})
	end <- true
	<-responded
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("the connection stays open")
	}
}

func TestPool_ACommandGoesOnWithoutItsClient(t *testing.T) {
	began, end := make(chan bool), make(chan bool)
	var runs atomic.Int32
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		io.Copy(io.Discard, r.Body)
		began <- true
		<-end
		if r.Context().Err() != nil {
			t.Error("the upstream was told to stop")
		}
		io.WriteString(w, "done")
	})
	gone := make(chan bool, 2)
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, Guard: newGuard(onlyonce.Config{Wait: time.Minute}), Idempotency: single}}, proxy.Config{})
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { gone <- true })
		p.ServeHTTP(w, r)
	}))
	c := dial(t, addr)
	io.WriteString(c, post11+"Idempotency-Key: k\r\nContent-Length: 1\r\n\r\nx")
	<-began
	c.Close()
	<-gone
	end <- true
	res, body := post(t, addr, "k", "x")
	wantResponse(t, res, body, 200, "done")
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestPool_ManyAtOnceWithOneKeyRunOnce(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{Wait: time.Minute}, nil)
	responses := make(chan string)
	for range 100 {
		go func() {
			_, body := post(t, addr, "k", "x")
			responses <- body
		}()
	}
	for range 100 {
		if body := <-responses; body != "run 1, attempt 1, x" {
			t.Errorf("%q", body)
		}
	}
}

func TestPool_AKeyInTheBodyProtects(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, func(r *proxy.Route) { r.KeyPointer = "/request/id" })
	for range 2 {
		res, body := post(t, addr, "", `{"request":{"id":"a b, \"c\""}}`)
		wantProblem(t, res, body, 400, "idempotency_key_invalid", false)
		res, body = post(t, addr, "", `{"request":{"id":"k1"}}`)
		wantResponse(t, res, body, 201, "run 1, attempt 1")
		res, body = post(t, addr, "k1", `{"request":{"id":"k1"}}`)
		wantResponse(t, res, body, 201, "run 1, attempt 1")
		res, body = post(t, addr, "k2", `{"request":{"id":"k1"}}`)
		wantProblem(t, res, body, 400, "idempotency_key_invalid", false)
		res, body = post(t, addr, "", `{"request":{"id":"k1","id":"k2"}}`)
		wantProblem(t, res, body, 400, "idempotency_key_invalid", false)
	}
	res, body := post(t, addr, "", `{"request":{}}`)
	wantResponse(t, res, body, 201, "run 2, attempt ,")
	res, body = post(t, addr, "k", `{"request":{}}`)
	wantResponse(t, res, body, 201, "run 3, attempt 1")
}

func TestPool_WhatMakesNoSenseIsRejected(t *testing.T) {
	up := &proxy.Upstream{URL: parse(t, "http://127.0.0.1:1")}
	guard := newGuard(onlyonce.Config{})
	for wants, r := range map[string]proxy.Route{
		"the Upstream is nil": {Pattern: "/"},
		"write a URL":         {Pattern: "/", Upstream: &proxy.Upstream{URL: parse(t, "ftp://h")}},
		"write https":         {Pattern: "/", Upstream: &proxy.Upstream{URL: up.URL, TLS: tlsConfig()}},
		"negative":            {Pattern: "/", Upstream: &proxy.Upstream{URL: up.URL, MaxIdle: -1}},
		"scheme, host":        {Pattern: "/", Upstream: &proxy.Upstream{URL: parse(t, "http://h/?x")}},
		"into Method":         {Pattern: "POST /", Upstream: up},
		"parsing":             {Pattern: "/{", Upstream: up},
		"SingleTenant":        {Pattern: "/", Upstream: up, Guard: guard},
		"no Guard":            {Pattern: "/", Upstream: up, KeyPointer: "/id"},
		"JSON Pointer":        {Pattern: "/", Upstream: up, Guard: guard, Idempotency: single, KeyPointer: "id"},
		"MaxBody":             {Pattern: "/", Upstream: up, MaxBody: -1},
		"how messages":        {Pattern: "/", Upstream: up, SetHeader: http.Header{"connection": {"x"}}},
		"control":             {Pattern: "/", Upstream: up, SetResponseHeader: http.Header{"X": {"a\r\nb"}}},
		"Idempotency.Header":  {Pattern: "/", Upstream: up, Guard: guard, Idempotency: httponce.Config{Tenant: httponce.SingleTenant, Header: "X_Key"}},
		"Idempotency.Fingerp": {Pattern: "/", Upstream: up, Guard: guard, Idempotency: httponce.Config{Tenant: httponce.SingleTenant, FingerprintHeaders: []string{"X.Account"}}},
		"conflicts with":      {Pattern: "/{y}", Upstream: up},
	} {
		err := proxy.Check([]proxy.Route{{Pattern: "/{x}", Upstream: up}, r}, proxy.Config{})
		if e, ok := err.(*proxy.RouteError); !ok || e.Route != 1 || !strings.Contains(err.Error(), wants) {
			t.Errorf("%v, want an error of route 1 that says %q", err, wants)
		}
	}
	if err := proxy.Check(nil, proxy.Config{}); err == nil {
		t.Error("no routes are taken")
	}
	if err := proxy.Check([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{BodyTimeout: -1}); err == nil {
		t.Error("a negative time is taken")
	}
	if err := proxy.Check([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{Protected: []string{"X_Tenant"}}); err == nil {
		t.Error("a name that servers spell in several ways is taken")
	}
}

func TestPool_OneRequestPerConnHoldsWithoutAKeyToo(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.RemoteAddr]++
	})
	up.OneRequestPerConn = true
	addr := orders(t, up, onlyonce.Config{}, nil)
	for i := range 6 {
		post(t, addr, []string{"", fmt.Sprint(i)}[i%2], "x")
	}
	if len(seen) != 6 {
		t.Errorf("6 requests came on %d connections: %v", len(seen), seen)
	}
}
