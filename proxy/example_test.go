package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func ExampleNew() {
	runs := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // in any language
		runs++
		fmt.Fprintf(w, "order %d, attempt %s", runs, r.Header.Get("Idempotency-Attempt"))
	}))
	defer service.Close()
	where, _ := url.Parse(service.URL)

	up := &proxy.Upstream{URL: where}
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	p := proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: guard, Idempotency: httponce.Config{
			Tenant: func(r *http.Request) string { return r.Header.Get("X-Tenant") },
		}},
		{Pattern: "/", Upstream: up},
	}, proxy.Config{Protected: []string{"X-Tenant"}})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := proxy.Server(p)
	defer server.Close()
	go server.Serve(proxy.Listen(l, nil))

	for range 2 {
		r, _ := http.NewRequest("POST", "http://"+l.Addr().String()+"/v1/orders", strings.NewReader(`{"sku":"tea"}`))
		r.Header.Set("X-Tenant", "acme")
		r.Header.Set("Idempotency-Key", "8e03978e")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		fmt.Printf("%s, replayed: %q\n", body, res.Header.Get("Idempotency-Replayed"))
	}
	// Output:
	// order 1, attempt 1, replayed: ""
	// order 1, attempt 1, replayed: "true"
}

func ExampleCheck() {
	up := &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:3000"}}
	err := proxy.Check([]proxy.Route{
		{Pattern: "/", Upstream: up},
		{Pattern: "POST /v1/orders", Upstream: up},
	}, proxy.Config{})
	var wrong *proxy.RouteError
	fmt.Println(errors.As(err, &wrong), wrong.Route)
	fmt.Println(err)
	// Output:
	// true 1
	// proxy: route 1: the Pattern is "POST /v1/orders": write a path such as /v1/orders/{id}, and the method into Method
}

func ExampleProxy_Reload() {
	up := &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:3000"}}
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{})

	routes := []proxy.Route{{Pattern: "/v2/", Upstream: up}} // the same Upstream: its connections stay
	if err := proxy.Check(routes, proxy.Config{}); err != nil {
		fmt.Println("as before:", err)
		return
	}
	p.Reload(routes, proxy.Config{})
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/v1/", nil))
	fmt.Println(w.Code)
	// Output: 404
}

func ExampleListen() {
	up := &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:3000"}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := proxy.Server(proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{}))
	defer server.Close()
	go server.Serve(proxy.Listen(l, nil))

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	response, _ := io.ReadAll(c)
	status, _, _ := strings.Cut(string(response), "\r\n")
	fmt.Println(status)
	// Output: HTTP/1.1 400 Bad Request
}
