package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// switching is an upstream that changes to the protocol that is asked for, and then
// repeats every line.
func switching(t *testing.T, seen *atomic.Int32) *proxy.Upstream {
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "no upgrade")
			return
		}
		seen.Add(1)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		for rw.Flush() == nil {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			rw.WriteString(line)
		}
	})
}

func TestPassThrough_AWebSocketPasses(t *testing.T) {
	var seen atomic.Int32
	addr := orders(t, switching(t, &seen), onlyonce.Config{}, nil)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	// The first request shows that the connection may have been used before.
	io.WriteString(c, get11+"\r\n")
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
	io.WriteString(c, get11+"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if res, err = http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		t.Fatal(res, err)
	}
	for _, line := range []string{"\x81\x00\x00 not HTTP\n", "POST / HTTP/1.1\n", "\r\n", "x\x00\n"} {
		io.WriteString(c, line)
		if got, err := in.ReadString('\n'); got != line {
			t.Fatalf("%q comes back as %q, %v", line, got, err)
		}
	}
}

func TestPassThrough_NoOtherUpgradePasses(t *testing.T) {
	var seen atomic.Int32
	up := switching(t, &seen)
	plain := orders(t, up, onlyonce.Config{}, nil)
	without := serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, NoUpgrade: true}}, proxy.Config{}))
	websocket := "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for raw, addr := range map[string]string{
		get11 + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n": plain,
		get11 + "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n":                                                  plain,
		get11 + "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n":                                       plain,
		get11 + "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n":                                                         plain,
		post11 + websocket: plain,
		post11 + "Idempotency-Key: k\r\n" + websocket:       plain,
		"POST / HTTP/1.1\r\nHost: h\r\n" + websocket:        plain,
		get11 + websocket + "Content-Length: 0\r\nX: y\r\n": without,
	} {
		if response := exchange(t, addr, raw+"\r\n"+get11+"Connection: close\r\n\r\n", len(raw)); strings.Count(response, "no upgrade") != 2 {
			t.Errorf("%q: %q", raw, response)
		}
	}
	if seen.Load() > 0 {
		t.Errorf("the upstream was asked %d times", seen.Load())
	}
}
