package httponce_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A lossy listener's connections break at random: before they are read, in the
// middle of a request, before a response and in the middle of it.
type lossy struct {
	net.Listener
	broke [4]atomic.Int32 // by where
}

func (l *lossy) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, of: l, fate: rand.IntN(6), after: rand.IntN(150)}, nil
}

type lossyConn struct {
	net.Conn
	of    *lossy
	fate  int // where it breaks; 4 and more: it doesn't
	after int // bytes of the request
	read  int
	once  sync.Once
}

func (c *lossyConn) fail() (int, error) {
	c.once.Do(func() {
		c.of.broke[c.fate].Add(1)
		reset(c.Conn)
	})
	return 0, errors.New("broken on purpose")
}

func (c *lossyConn) Read(p []byte) (int, error) {
	switch c.fate {
	case 0:
		return c.fail()
	case 1:
		if c.read >= c.after {
			return c.fail()
		}
		p = p[:min(len(p), c.after-c.read)]
	}
	n, err := c.Conn.Read(p)
	c.read += n
	return n, err
}

func (c *lossyConn) Write(p []byte) (int, error) {
	switch c.fate {
	case 2:
		return c.fail()
	case 3:
		_, _ = c.Conn.Write(p[:rand.IntN(len(p))])
		return c.fail()
	}
	return c.Conn.Write(p)
}

func TestTransport_EveryCallThroughALossyNetworkRunsOnce(t *testing.T) {
	const calls = 200
	var runs sync.Map // by order
	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item, _ := io.ReadAll(r.Body)
		n, _ := runs.LoadOrStore(string(item), new(atomic.Int32))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s, run %d", item, n.(*atomic.Int32).Add(1))
	})
	guard := newGuard(onlyonce.Config{Wait: 10 * time.Second})
	server := httptest.NewUnstartedServer(httponce.Wrap(guard, order, httponce.Config{Tenant: httponce.SingleTenant, Required: true}))
	network := &lossy{Listener: server.Listener}
	server.Listener = network
	server.Start()
	defer server.Close()
	base := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: &httponce.Transport{Base: base, Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond, MaxAttempts: 1000}}

	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := caller; i < calls; i += 8 {
				item := fmt.Sprintf("order %d %s", i, strings.Repeat("x", i))
				w, err := client.Post(server.URL, "text/plain", strings.NewReader(item))
				if err != nil {
					t.Error(err)
					continue
				}
				answer, err := io.ReadAll(w.Body)
				_ = w.Body.Close()
				if w.StatusCode != 201 || string(answer) != item+", run 1" || err != nil {
					t.Errorf("the response is %d %q, %v", w.StatusCode, answer, err)
				}
			}
		})
	}
	callers.Wait()
	total := 0
	runs.Range(func(_, n any) bool { total += int(n.(*atomic.Int32).Load()); return true })
	if total != calls {
		t.Errorf("%d calls ran %d times", calls, total)
	}
	for where := range network.broke {
		if network.broke[where].Load() == 0 {
			t.Errorf("no connection broke at place %d", where)
		}
	}
}
