package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// dialer connects from an address of this machine.
func dialer(t *testing.T, addr string) *net.Dialer {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux, where a program can connect from 127.0.0.2 without setup")
	}
	return &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 0))}
}

// A siege is a proxy whose slots clients of 127.0.0.2 take, and come back for, until
// the test ends.
type siege struct {
	t       *testing.T
	addr    string
	dial    *net.Dialer
	sent    atomic.Int32 // of the clients' requests, those that are with the upstream
	reports chan string

	mu   sync.Mutex
	runs map[string]int // of each key
}

// long is the length of a response that no buffers can take.
const long = 64 << 20

const siegeSlots = 8

func newSiege(t *testing.T) *siege {
	s := &siege{t: t, dial: dialer(t, "127.0.0.2"), reports: make(chan string, 1000), runs: map[string]int{}}
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.runs[r.Header.Get("Idempotency-Key")]++
		s.mu.Unlock()
		if r.URL.Query().Has("short") {
			w.WriteHeader(201)
			return
		}
		s.sent.Add(1)
		defer s.sent.Add(-1)
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(long))
		w.WriteHeader(201)
		for piece := bytes.Repeat([]byte("x"), 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	up.MaxConns = siegeSlots
	guard := newGuard(onlyonce.Config{HoldUnknown: true})
	s.addr = serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, Guard: guard, Idempotency: single}}, proxy.Config{
		BodyTimeout: time.Hour,
		OnError: func(_ *http.Request, err error) {
			select {
			case s.reports <- err.Error():
			default:
			}
		},
	}))
	return s
}

// begin lets attack be called by as many clients as there are slots and more, one
// after the other and again, and waits until the slots are taken.
func (s *siege) begin(slots int, attack func(n int)) {
	ctx, end := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	s.t.Cleanup(func() { end(); all.Wait() })
	var n atomic.Int32
	for range 2 * slots {
		all.Go(func() {
			for ctx.Err() == nil {
				attack(int(n.Add(1)))
				select {
				case <-ctx.Done():
				case <-time.After(500 * time.Millisecond):
				}
			}
		})
	}
	for until := time.Now().Add(patience); int(s.sent.Load()) < slots; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			s.t.Fatalf("%d slots are taken", s.sent.Load())
		}
	}
}

// wantOthers fails unless another address gets responses, however often it has to retry:
// without protection it would get none for as long as slow clients may hold their responses.
func (s *siege) wantOthers(key string) {
	s.t.Helper()
	until := time.Now().Add(patience)
	for i := range 5 {
		for {
			h := http.Header{}
			if key != "" {
				h.Set("Idempotency-Key", key+strconv.Itoa(i))
			}
			if res, _ := send(s.t, "POST", "http://"+s.addr+"/?short", h, ""); res.StatusCode == 201 {
				break
			}
			if time.Now().After(until) {
				s.t.Fatalf("another address got %d responses", i)
			}
		}
	}
}

// raw sends a request and reads nothing, on a connection that stays.
func (s *siege) raw(request string) net.Conn {
	c, err := s.dial.Dial("tcp", s.addr)
	if err != nil {
		return nil
	}
	s.t.Cleanup(func() { c.Close() })
	io.WriteString(c, request)
	return c
}

func TestSecurity_ClientsThatTakeNothingKeepOutNoOtherAddress(t *testing.T) {
	s := newSiege(t)
	s.begin(siegeSlots-siegeSlots/4, func(int) { s.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n") })
	s.wantOthers("")
	for why := ""; !strings.Contains(why, "read too little of its response"); {
		select {
		case why = <-s.reports:
		case <-time.After(patience):
			t.Fatal("nobody is told why")
		}
	}
}

func TestSecurity_StreamsThatTakeNothingKeepOutNoOtherAddress(t *testing.T) {
	s := newSiege(t)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Transport{Protocols: protocols, DialContext: s.dial.DialContext}
	t.Cleanup(client.CloseIdleConnections)
	s.begin(siegeSlots-siegeSlots/4, func(int) {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.addr+"/", nil)
		if res, err := client.RoundTrip(r); err == nil {
			t.Cleanup(func() { res.Body.Close() })
		}
	})
	s.wantOthers("")
}

func TestSecurity_BodiesThatDoNotComeKeepOutNoOtherAddress(t *testing.T) {
	s := newSiege(t)
	s.begin(siegeSlots-siegeSlots/4, func(int) { s.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n") })
	s.wantOthers("")
}

// A request that is ended has run, once, and is recorded as when a client hangs up.
func TestSecurity_KeyedRequestsOfClientsThatTakeNothingRunOnce(t *testing.T) {
	s := newSiege(t)
	s.begin(siegeSlots, func(n int) {
		s.raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k%d\r\nContent-Length: 0\r\n\r\n", n))
	})
	s.wantOthers("other")
	replayed := 0
	for n, until := 0, time.Now().Add(patience); replayed == 0 && time.Now().Before(until); n++ {
		key := "k" + strconv.Itoa(n%(2*siegeSlots)+1)
		c := s.raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", key))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.Header.Get("Idempotency-Replayed") == "true" {
			if replayed++; res.StatusCode != 201 || res.Header.Get("Idempotency-Replay") != "omitted" {
				t.Errorf("the repeat of %s gets %d %v", key, res.StatusCode, res.Header)
			}
		}
		c.Close()
	}
	if replayed == 0 {
		t.Error("no repeat got the recorded response")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, n := range s.runs {
		if n != 1 {
			t.Errorf("%s ran %d times", key, n)
		}
	}
}
