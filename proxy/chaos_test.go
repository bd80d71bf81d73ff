package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// unreliable is an upstream that fails in every way, and counts what it has
// received whole.
type unreliable struct {
	mu   sync.Mutex
	runs map[string]int
}

func (u *unreliable) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if rand.IntN(10) == 0 {
			c.Close() // as soon as it stands
			continue
		}
		go u.talk(c)
	}
}

func (u *unreliable) talk(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		if rand.IntN(10) == 0 {
			return // between two requests, or within one
		}
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != r.Header.Get("Idempotency-Key") {
			return
		}
		u.mu.Lock()
		u.runs[r.Header.Get("Idempotency-Key")]++
		u.mu.Unlock()
		const response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		switch rand.IntN(12) {
		case 0:
			return
		case 1:
			io.WriteString(c, response[:rand.IntN(len(response))])
			return
		case 2:
			io.WriteString(c, response+"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
		case 3:
			io.WriteString(c, response)
			return
		case 4:
			io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		default:
			io.WriteString(c, response)
		}
	}
}

// TestProxy_WhateverTheUpstreamDoesACommandRunsAtMostOnce holds it where an unknown
// outcome is held: what is released, and so runs again, has not been sent.
func TestProxy_WhateverTheUpstreamDoesACommandRunsAtMostOnce(t *testing.T) {
	u := &unreliable{runs: map[string]int{}}
	l := listen(t)
	go u.serve(l)
	up := &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String()), KeepIdle: time.Minute}
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true, Wait: time.Minute}, nil)
	const keys, clients = 400, 8
	ends := make([]map[string]int, clients)
	var all sync.WaitGroup
	for i := range clients {
		ends[i] = map[string]int{}
		all.Go(func() {
			for k := range keys {
				key := fmt.Sprint("k", k)
				for try := 0; try < 20; try++ {
					res, body := post(t, addr, key, key)
					switch {
					case res.StatusCode == 200 && body == "ok":
						ends[i]["ok"]++
					case res.StatusCode == 409:
						ends[i]["unknown"]++
					case res.StatusCode/100 == 5:
						continue
					default:
						t.Errorf("%d %q", res.StatusCode, body)
					}
					break
				}
			}
		})
	}
	all.Wait()
	ok, unknown := 0, 0
	for _, e := range ends {
		ok, unknown = ok+e["ok"], unknown+e["unknown"]
	}
	if ok+unknown < keys*clients*9/10 || ok == 0 || unknown == 0 {
		t.Errorf("%d requests ended well, %d unknown", ok, unknown)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, n := range u.runs {
		if n > 1 {
			t.Errorf("%s ran %d times", key, n)
		}
	}
}
