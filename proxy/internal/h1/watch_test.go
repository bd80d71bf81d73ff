package h1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A timedConn passes on the read deadlines that are set.
type timedConn struct {
	spoken
	set chan time.Time
}

func (c *timedConn) SetReadDeadline(at time.Time) error {
	c.set <- at
	return nil
}

func (c *timedConn) SetDeadline(at time.Time) error { return c.SetReadDeadline(at) }

func TestWatch_NoLaterDeadlineReplacesTheEndOfTheContext(t *testing.T) {
	on := &timedConn{set: make(chan time.Time, 2)}
	c := &conn{Conn: on, watch: true}
	ctx, cancel := context.WithCancel(t.Context())
	c.begin(ctx)
	c.allow(time.Minute)
	if at := <-on.set; !at.After(time.Now()) {
		t.Errorf("the first deadline is %v", at)
	}
	cancel()
	if at := <-on.set; at != longAgo {
		t.Errorf("when the context ends, the deadline becomes %v", at)
	}
	c.allow(time.Minute)
	<-on.set
	if at := <-on.set; at != longAgo {
		t.Errorf("after the context has ended, the deadline stays %v", at)
	}
}

func TestWatch_AConnectionWhoseContextHasEndedIsNotUsedAgain(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.RemoteAddr))
	}))
	defer server.Close()
	c := NewClient(Config{Address: server.Listener.Addr().String(), DialTimeout: time.Minute, MaxIdle: 4, KeepIdle: time.Minute, Watch: true})
	defer c.Retire()
	send := func(end bool) (from string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q := NewRequest("GET", "/")
		defer q.Release()
		q.Field("Host", "localhost")
		q.NoBody()
		r, _, err := c.Send(ctx, q, nil, "owner")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Body(func(p []byte) bool {
			from += string(p)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if end {
			cancel()
		}
		r.Release()
		return from
	}
	first := send(false)
	if second := send(true); second != first {
		t.Errorf("%s, then %s: the idle connection was not used", first, second)
	}
	if third := send(false); third == first {
		t.Error("a connection is used whose deadline the end of an earlier context may still set")
	}
}

// fullConn is a connection whose server reads nothing: a Write waits for a deadline.
type fullConn struct {
	spoken
	writes chan time.Time
}

func (c *fullConn) SetDeadline(at time.Time) error      { return c.SetWriteDeadline(at) }
func (c *fullConn) SetWriteDeadline(at time.Time) error { c.writes <- at; return nil }

func (c *fullConn) Write([]byte) (int, error) {
	<-c.writes
	return 0, os.ErrDeadlineExceeded
}

// A server may respond to many requests of which it reads none. Then no more of them fit into the
// buffers of the connection.
func TestWatch_AShortRequestThatTheServerDoesNotTakeEnds(t *testing.T) {
	c := &conn{Conn: &fullConn{writes: make(chan time.Time, 1)}}
	c.begin(t.Context())
	if _, err := c.write([]byte("request"), time.Minute); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("within a time limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = &conn{Conn: &fullConn{writes: make(chan time.Time, 1)}, watch: true}
	c.begin(ctx)
	cancel()
	if _, err := c.write([]byte("request"), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("until its context ends: %v", err)
	}
}

// A deadline that is set less often must not end a request before its time.
func TestWatch_AShortRequestHasItsTimeOnAnOldConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &takingConn{}
		c := &conn{Conn: to}
		c.begin(t.Context())
		for range 5 {
			if _, err := c.write([]byte("request"), time.Minute); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(to.until); left < time.Minute || left > 2*time.Minute {
				t.Errorf("a request has %v", left)
			}
			time.Sleep(35 * time.Second)
		}
		if to.set != 3 {
			t.Errorf("%d deadlines are set for 5 requests", to.set)
		}
	})
}

type takingConn struct {
	spoken
	until time.Time
	set   int
}

func (c *takingConn) Write(p []byte) (int, error) { return len(p), nil }

func (c *takingConn) SetWriteDeadline(at time.Time) error {
	c.until = at
	c.set++
	return nil
}

// TLS answers a change of keys while it reads a response, which may take longer than any
// deadline of the request.
func TestWatch_NoDeadlineOfARequestStaysOnATLSConnection(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	below := &deadlineConn{}
	trusts := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusts.ServerName = "example.com"
	c := &conn{Conn: tls.Client(below, trusts)}
	var err error
	if below.Conn, err = net.Dial("tcp", server.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	c.begin(t.Context())
	if _, err := c.write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if below.set == 0 || !below.until.IsZero() {
		t.Errorf("%d write deadlines were set, the last one to %v", below.set, below.until)
	}
}

type deadlineConn struct {
	net.Conn
	until time.Time
	set   int
}

func (c *deadlineConn) SetWriteDeadline(at time.Time) error {
	c.until = at
	c.set++
	return c.Conn.SetWriteDeadline(at)
}
