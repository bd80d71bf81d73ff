package slots

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy/internal/inbound"
)

// A memoryConn is a connection in memory from an address. It may stop receiving.
type memoryConn struct {
	net.Conn
	from net.Addr
	deaf <-chan struct{} // closed: it receives nothing until stop; nil: it receives
	stop <-chan struct{}
}

func (c memoryConn) RemoteAddr() net.Addr { return c.from }

func (c memoryConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf != nil {
		select {
		case <-c.deaf:
			<-c.stop
		default:
		}
	}
	return n, err
}

// A slotServer serves connections in memory. Its handler holds a slot while it reads
// a request's body and responds.
type slotServer struct {
	slots *Slots
	conns chan net.Conn
	stop  chan struct{}

	mu    sync.Mutex
	ended []string
}

func (s *slotServer) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.stop:
		return nil, net.ErrClosed
	}
}

func (s *slotServer) Close() error   { close(s.stop); return nil }
func (s *slotServer) Addr() net.Addr { return &net.TCPAddr{} }

func newSlotServer(t *testing.T, most int) *slotServer {
	s := &slotServer{slots: New(most), conns: make(chan net.Conn), stop: make(chan struct{})}
	server := inbound.NewServer(s)
	server.ErrorLog = log.New(io.Discard, "", 0)
	go server.Serve(inbound.Listen(s, nil, nil))
	t.Cleanup(func() {
		server.Close()
		wait(time.Hour)
		if s.slots.held != 0 || s.slots.heldUnkeyed != 0 || s.slots.first != nil || len(s.slots.queue) != 0 || len(s.slots.clients) != 0 {
			t.Errorf("in the end there are %d slots, %d waiters, %d clients", s.slots.held, len(s.slots.queue), len(s.slots.clients))
		}
	})
	return s
}

func (s *slotServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	held := s.slots.Take(w, r, r.Header.Get("Idempotency-Key") != "", r.Header.Get("Tenant"))
	if held == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer func() { s.note(held.GiveBack()) }()
	response := held.Response(w)
	AllowBody(w, time.Hour)
	body := NewTimedBody(w, r, time.Hour)
	held.Watch(body)
	if r.URL.Path == "/talk" {
		response.WriteHeader(http.StatusOK)
		for word := make([]byte, len("word")); ; {
			_ = response.FlushError()
			if _, err := io.ReadFull(body, word); err == io.EOF {
				return
			} else if err != nil {
				s.note(err)
				return
			}
			_, _ = response.Write(word)
		}
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		s.note(err)
		return
	}
	switch r.URL.Path {
	case "/short":
		io.WriteString(response, "short")
	case "/stays":
		for {
			if _, err := response.Write(make([]byte, 32<<10)); err != nil {
				time.Sleep(2 * slotWait)
				return
			}
		}
	case "/works":
		time.Sleep(time.Minute)
	case "/events":
		for range 10 {
			fmt.Fprintf(response, "data: x\n\n")
			_ = response.FlushError()
			time.Sleep(30 * time.Second)
		}
	default:
		for range 1024 {
			if _, err := response.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	}
}

func (s *slotServer) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.ended = append(s.ended, err.Error())
	}
}

// wait lets time pass, and waits until all goroutines are idle.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// held returns how many slots are.
func (s *slotServer) held() int {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.slots.held
}

// count returns how many requests were ended.
func (s *slotServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ended)
}

func (s *slotServer) dial(addr string) net.Conn {
	ours, theirs := net.Pipe()
	s.conns <- memoryConn{theirs, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)), nil, nil}
	return ours
}

// get sends a request by HTTP/1 with these fields and returns its connection.
func (s *slotServer) get(t *testing.T, addr, path string, fields ...string) net.Conn {
	c := s.dial(addr)
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, strings.Join(fields, "")); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

// status sends a short request by HTTP/1 and returns the status of its response.
func (s *slotServer) status(t *testing.T, addr string, fields ...string) string {
	c := s.get(t, addr, "/short", fields...)
	defer c.Close()
	b := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return strings.TrimPrefix(string(b), "HTTP/1.1 ")
}

// streams returns a function that opens HTTP/2 responses that no client reads, on one connection
// from the address.
func (s *slotServer) streams(t *testing.T, addr string, deaf <-chan struct{}) func(path string) (*http.Response, error) {
	client := s.client(t, addr, deaf)
	return func(path string) (*http.Response, error) { return client.Get("http://x" + path) }
}

// client returns a client that sends all by HTTP/2 on one connection from the address.
func (s *slotServer) client(t *testing.T, addr string, deaf <-chan struct{}) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			s.conns <- memoryConn{theirs, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)), nil, nil}
			return memoryConn{ours, nil, deaf, s.stop}, nil
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
