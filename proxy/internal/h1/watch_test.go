package h1

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
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
