package h1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A connection whose sending half is closed looks alive, and takes no byte.
func TestClient_WhatAConnectionDoesNotTakeIsSentOnAnother(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 100)
				n, _ := c.Read(b)
				got <- string(b[:n])
			}()
		}
	}()
	up := NewClient(Config{Address: l.Addr().String(), DialTimeout: time.Minute, StallTimeout: time.Minute, MaxIdle: 1, KeepIdle: time.Minute})
	first, err := up.dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-got
	first.owner = "tenant"
	up.pool.put(first)
	second, sent, err := up.write(context.Background(), []byte("request"), "tenant")
	if err != nil || !sent || second == first {
		t.Fatal(sent, err)
	}
	defer second.Close()
	if request := <-got; request != "request" {
		t.Errorf("%q", request)
	}
	l.Close()
	if err := second.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	up.pool.put(second)
	if _, sent, err := up.write(context.Background(), []byte("request"), "tenant"); err == nil || sent {
		t.Errorf("without a server: sent %v, %v", sent, err)
	}
}

// partial is a connection that breaks after the first byte.
type partial struct{ spoken }

func (*partial) Write([]byte) (int, error)        { return 1, io.ErrClosedPipe }
func (*partial) SetWriteDeadline(time.Time) error { return nil }

func TestClient_OneByteIsEnoughToHaveBeenSent(t *testing.T) {
	c := &conn{Conn: &partial{}}
	if sent, err := c.write([]byte("request"), time.Second); !sent || err == nil {
		t.Errorf("sent %v, %v", sent, err)
	}
}

func TestClient_AConnectionIsUsedAgainOnlyByItsOwnerAndIfNothingIsLeft(t *testing.T) {
	conns, rest := make(chan net.Conn, 10), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/closes":
			w.Header().Set("Connection", "close")
		case "/half":
			w.Header().Set("Content-Length", "20")
			_, _ = w.Write(make([]byte, 10))
			w.(http.Flusher).Flush()
			<-rest
		}
		_, _ = w.Write(make([]byte, 64<<10))
	}))
	server.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns <- c
		}
	}
	server.Start()
	defer server.Close()
	defer close(rest)
	c := NewClient(Config{Address: server.Listener.Addr().String(), DialTimeout: time.Minute, StallTimeout: time.Minute, HeaderTimeout: time.Minute, MaxIdle: 4, KeepIdle: time.Minute})
	defer c.Retire()
	all := func([]byte) bool { return true }
	send := func(path, owner string, take func([]byte) bool) (made int) {
		t.Helper()
		q := NewRequest("POST", path)
		defer q.Release()
		q.Field("Host", "localhost")
		if err := q.Body(nil, 0); err != nil {
			t.Fatal(err)
		}
		r, sent, err := c.Send(t.Context(), q, nil, owner)
		if err != nil || !sent || r.Status() != 200 {
			t.Fatalf("sent %v, %v", sent, err)
		}
		if err := r.Body(take); err != nil {
			t.Fatal(err)
		}
		r.Release()
		for made = 0; len(conns) > 0; made++ {
			<-conns
		}
		return made
	}
	for i, step := range []struct {
		path, owner string
		take        func([]byte) bool
		made        int
	}{
		{"/", "acme", all, 1},
		{"/", "acme", all, 0},
		{"/", "other", all, 1},
		{"/", "", all, 1},
		{"/", "acme", func([]byte) bool { return false }, 0},     // the rest of the response is on the connection
		{"/half", "slow", func([]byte) bool { return false }, 1}, // the rest of the response is still to come
		{"/", "slow", all, 1},
		{"/closes", "acme", all, 1},
		{"/", "acme", all, 1},
	} {
		if made := send(step.path, step.owner, step.take); made != step.made {
			t.Errorf("step %d: %d connections were made, want %d", i, made, step.made)
		}
	}
}

func TestClient_WhatCannotBeSentIsNotSent(t *testing.T) {
	c := NewClient(Config{Address: "127.0.0.1:1", DialTimeout: time.Minute, StallTimeout: time.Minute})
	for name, write := range map[string]func() *Request{
		"a method":  func() *Request { return NewRequest("PO ST", "/") },
		"no method": func() *Request { return NewRequest("", "/") },
		"a target":  func() *Request { return NewRequest("POST", "/", "a b") },
		"a name":    func() *Request { q := NewRequest("POST", "/"); q.Field("A:", "b"); return q },
		"a value":   func() *Request { q := NewRequest("POST", "/"); q.Field("A", "b\r\nC: d"); return q },
		"a made value": func() *Request {
			q := NewRequest("POST", "/")
			q.FieldFunc("A", func(b []byte) []byte { return append(b, '\n') })
			return q
		},
	} {
		q := write()
		if err := q.Body(nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, sent, err := c.Send(t.Context(), q, nil, ""); sent || !errors.Is(err, ErrUnwritable) {
			t.Errorf("%s: sent %v, %v", name, sent, err)
		}
		q.Release()
	}
}

// TestClient_ARequestThatTheServerDoesNotReadEndsWithItsContext: another attempt at the
// command may begin soon after. The server must not then receive the rest of this one.
func TestClient_ARequestThatTheServerDoesNotReadEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClient(Config{Address: l.Addr().String(), DialTimeout: time.Minute, StallTimeout: time.Hour, MaxIdle: 1, KeepIdle: time.Minute})
	const length = 1 << 30 // more than the kernel buffers
	cause := errors.New("the lease was lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	type outcome struct {
		sent bool
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		body := io.LimitReader(zeros{}, length)
		q := NewRequest("POST", "/orders")
		defer q.Release()
		if err := q.Body(body, length); err != nil {
			t.Error(err)
		}
		_, sent, err := c.Send(ctx, q, body, "tenant")
		ended <- outcome{sent, err}
	}()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil { // the client is connected
		t.Fatal(err)
	}
	cancel(cause)
	select {
	case o := <-ended:
		if !o.sent || !errors.Is(o.err, cause) {
			t.Errorf("sent %v, %v", o.sent, o.err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the request is still being sent")
	}
	if n, _ := io.Copy(io.Discard, server); n >= length {
		t.Errorf("the server got all %d bytes", n)
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestClient_NothingIsSentAfterTheContextHasEnded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClient(Config{Address: l.Addr().String(), DialTimeout: time.Minute, StallTimeout: time.Minute, MaxIdle: 1, KeepIdle: time.Minute})
	defer c.Retire()
	idle, err := c.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	idle.owner = "tenant"
	c.pool.put(idle)
	cause := errors.New("the lease was lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	q := NewRequest("POST", "/orders")
	defer q.Release()
	if err := q.Body(nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, sent, err := c.Send(ctx, q, nil, "tenant"); sent || !errors.Is(err, cause) {
		t.Errorf("sent %v, %v", sent, err)
	}
}
