package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// late is an upstream that writes a second response on the connection of the first
// request, at the moment another request has come, and before it responds to that.
func late(t *testing.T) *proxy.Upstream {
	t.Helper()
	l := listen(t)
	var mu sync.Mutex
	var first net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					mu.Lock()
					if first == nil {
						first = c
					} else {
						io.WriteString(first, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
					}
					key := r.Header.Get("Idempotency-Key")
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nfor %s", 4+len(key), key)
					mu.Unlock()
				}
			}()
		}
	}()
	return &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: l.Addr().String()}, KeepIdle: time.Minute}
}

func TestListener_BytesAfterAResponseReachNoOtherTenant(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		up := late(t)
		up.OneRequestPerConn = fresh
		addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency = httponce.Config{Tenant: byTenant} })
		for i, tenant := range []string{"alice", "bob", "carol", "bob"} {
			key := fmt.Sprint(tenant, i)
			for range 2 {
				res, body := send(t, "POST", "http://"+addr+"/v1/orders", keyed(tenant, key), "x")
				wantResponse(t, res, body, 200, "for "+key)
			}
		}
	}
}

func TestListener_AConnectionIsUsedAgainForTheSameTenantOnly(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		said := make(chan string, 1)
		up, _, conns := scripted(t, func(_ int, r *http.Request) (string, bool) {
			said <- fmt.Sprint(r.Close)
			return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", !r.Close
		})
		up.KeepIdle, up.MaxIdle, up.OneRequestPerConn = time.Minute, 2, fresh
		addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency = httponce.Config{Tenant: byTenant} })
		for i, c := range []struct {
			tenant string
			conns  int32
		}{{"alice", 1}, {"alice", 1}, {"bob", 2}, {"alice", 2}, {"bob", 2}, {"carol", 3}, {"carol", 3}, {"bob", 3}, {"alice", 4}} {
			send(t, "POST", "http://"+addr+"/v1/orders", keyed(c.tenant, fmt.Sprint(i)), "x")
			want := c.conns
			if fresh {
				want = int32(i + 1)
			}
			if closes := <-said; conns.Load() != want || closes != fmt.Sprint(fresh) {
				t.Errorf("request %d, of %s: %d connections, want %d; Connection: close is %s", i, c.tenant, conns.Load(), want, closes)
			}
		}
	}
}

// A corked connection writes nothing until it has all.
type corked struct {
	net.Conn
	on   bool
	held bytes.Buffer
}

func (c *corked) Write(p []byte) (int, error) {
	if c.on {
		return c.held.Write(p)
	}
	return c.Conn.Write(p)
}

func TestListener_BytesThatTLSReceivedAfterAResponseAreNotTheNext(t *testing.T) {
	ca := newAuthority(t)
	for _, all := range []bool{true, false} { // of the second response's record
		l := listen(t)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { c.Close() })
				go func() {
					below := &corked{Conn: c}
					secure := tls.Server(below, &tls.Config{Certificates: []tls.Certificate{ca.issue("upstream")}})
					for in := bufio.NewReader(secure); ; {
						r, err := http.ReadRequest(in)
						if err != nil {
							return
						}
						io.Copy(io.Discard, r.Body)
						below.on = true
						io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
						io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
						below.on = false
						whole := below.held.Bytes()
						if !all {
							whole = whole[:len(whole)-10]
						}
						below.Conn.Write(whole)
						below.held.Reset()
					}
				}()
			}
		}()
		up := &proxy.Upstream{URL: &url.URL{Scheme: "https", Host: l.Addr().String()}, TLS: &tls.Config{RootCAs: ca.pool}, KeepIdle: time.Minute}
		addr := orders(t, up, onlyonce.Config{}, nil)
		for i := range 3 {
			res, body := post(t, addr, fmt.Sprint(i), "x")
			wantResponse(t, res, body, 200, "hi")
		}
	}
}
