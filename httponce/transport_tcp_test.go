package httponce_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// serveRaw serves each connection with the next of the functions, the last one
// again and again, and returns the server's address.
func serveRaw(t *testing.T, each ...func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve := each[min(i, len(each)-1)]
			serving.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return "http://" + listener.Addr().String()
}

// A receipt holds the parts of one request that a server read.
type receipt struct{ key, body string }

// receive reads a request whole.
func receive(conn net.Conn) (receipt, error) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return receipt{}, err
	}
	body, err := io.ReadAll(r.Body)
	return receipt{r.Header.Get("Idempotency-Key"), string(body)}, err
}

// reset closes a connection so that its other end meets an error, and not an
// end.
func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// A ledger lists the requests that a server has received.
type ledger struct {
	mu  sync.Mutex
	got []receipt
}

// A failure is a way in which a server breaks a connection.
type failure func(*ledger, net.Conn)

// answers receives a request and writes raw bytes.
func answers(raw string) failure {
	return func(l *ledger, conn net.Conn) {
		r, err := receive(conn)
		if err != nil {
			return
		}
		l.mu.Lock()
		l.got = append(l.got, r)
		l.mu.Unlock()
		_, _ = io.WriteString(conn, raw)
	}
}

// stalls does the same, and then nothing until the client goes away.
func stalls(raw string) failure {
	return func(l *ledger, conn net.Conn) {
		answers(raw)(l, conn)
		_, _ = conn.Read(make([]byte, 1))
	}
}

func TestTransport_ARequestToAServerThatFailsInAnyWayIsRetried(t *testing.T) {
	const good = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmade"
	date := func(d time.Duration) string { return time.Now().UTC().Add(d).Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		fails    failure
		received int
		within   time.Duration
	}{
		"drops before it reads": {func(_ *ledger, conn net.Conn) { reset(conn) }, 1, 0},
		"drops in the middle of the request": {func(_ *ledger, conn net.Conn) {
			_, _ = io.CopyN(io.Discard, conn, 100)
			reset(conn)
		}, 1, 0},
		"drops after it ran":             {answers(""), 2, 0},
		"drops in the status line":       {answers("HTTP/1.1 20"), 2, 0},
		"drops in the header":            {answers("HTTP/1.1 201 Created\r\nContent-Le"), 2, 0},
		"drops in the body":              {answers("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nma"), 2, 0},
		"answers something else":         {answers("SSH-2.0-OpenSSH_9.2\r\n"), 2, 0},
		"is slow":                        {stalls(""), 2, 5 * time.Second},
		"is slow in its response":        {stalls(good[:len(good)-2]), 2, 5 * time.Second},
		"is at it":                       {answers("HTTP/1.1 409 Conflict\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"), 2, 0},
		"is too busy for seconds":        {answers("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"), 2, 0},
		"is too busy until a date":       {answers("HTTP/1.1 503 Service Unavailable\r\nDate: " + date(time.Hour) + "\r\nRetry-After: " + date(time.Hour+time.Second) + "\r\nContent-Length: 0\r\n\r\n"), 2, 0},
		"limits":                         {answers("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"), 2, 0},
		"limits, and breaks off":         {answers("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9\r\n\r\nno"), 2, 0},
		"says 503 in chunks, breaks off": {answers("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nno"), 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var book ledger
			url := serveRaw(t, func(conn net.Conn) { c.fails(&book, conn) }, func(conn net.Conn) { answers(good)(&book, conn) })
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			client := &http.Client{Transport: &httponce.Transport{Base: base, Backoff: time.Millisecond, AttemptTimeout: c.within}}
			body := strings.Repeat("tea", 5000)
			w, err := client.Post(url, "text/plain", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Body.Close()
			if text, err := io.ReadAll(w.Body); w.StatusCode != 201 || string(text) != "made" || err != nil {
				t.Errorf("the response is %d %q, %v", w.StatusCode, text, err)
			}
			book.mu.Lock()
			defer book.mu.Unlock()
			if len(book.got) != c.received {
				t.Fatalf("%d requests came whole, want %d", len(book.got), c.received)
			}
			for _, r := range book.got {
				if r.key == "" || r.key != book.got[0].key || r.body != body {
					t.Errorf("came with %q and %d bytes", r.key, len(r.body))
				}
			}
		})
	}
}

func TestTransport_ABrokenStreamOfHTTP2IsSentAgain(t *testing.T) {
	var times atomic.Int32
	server := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := times.Add(1)
		switch n {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "ma")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%s, HTTP/%d", body, r.ProtoMajor)
	}), true)
	client := &http.Client{Transport: &httponce.Transport{Base: server.Client().Transport, Backoff: time.Millisecond}}
	w, err := client.Post(server.URL, "text/plain", strings.NewReader("tea"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if text, err := io.ReadAll(w.Body); string(text) != "tea, HTTP/2" || err != nil || times.Load() != 3 {
		t.Errorf("%q, %v, after %d requests", text, err, times.Load())
	}
}

func TestTransport_A422IsReturnedAtOnce(t *testing.T) {
	var times atomic.Int32
	url := serveRaw(t, func(conn net.Conn) {
		if _, err := receive(conn); err == nil {
			times.Add(1)
			_, _ = io.WriteString(conn, "HTTP/1.1 422 Unprocessable Entity\r\nRetry-After: 1\r\nContent-Length: 6\r\nConnection: close\r\n\r\nreused")
		}
	})
	w, err := (&http.Client{Transport: &httponce.Transport{}}).Post(url, "text/plain", strings.NewReader("tea"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if text, _ := io.ReadAll(w.Body); w.StatusCode != 422 || string(text) != "reused" || times.Load() != 1 {
		t.Errorf("the response is %d %q after %d requests", w.StatusCode, text, times.Load())
	}
}

func TestTransport_ADiscardedResponseLeavesItsConnectionUsable(t *testing.T) {
	var connections, requests atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) < 4 {
			http.Error(w, strings.Repeat("busy ", 2000), http.StatusServiceUnavailable)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: &httponce.Transport{Base: base, Backoff: time.Millisecond, MaxResponse: 100}}
	w, err := client.Post(server.URL, "text/plain", nil)
	if err != nil || w.StatusCode != 200 {
		t.Fatal(err)
	}
	_ = w.Body.Close()
	if connections.Load() != 1 || requests.Load() != 4 {
		t.Errorf("%d requests took %d connections", requests.Load(), connections.Load())
	}
}
