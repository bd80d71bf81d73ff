package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// upstream2 is upstream for one that speaks HTTP/2.
func upstream2(t testing.TB, h http.HandlerFunc) *proxy.Upstream {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return &proxy.Upstream{URL: parse(t, s.URL), HTTP2: true}
}

// wantBrokenOff wants the response of an upstream to be broken off and its outcome to be unknown.
// It returns the address of the proxy.
func wantBrokenOff(t *testing.T, up *proxy.Upstream) (addr string) {
	t.Helper()
	addr = orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", nil)
	r.Header.Set("Idempotency-Key", "k")
	if res, err := client.RoundTrip(r); err == nil {
		_, err := io.Copy(io.Discard, res.Body)
		if res.Body.Close(); res.StatusCode == 200 && err == nil {
			t.Errorf("HTTP/2 %v: it came to an end", up.HTTP2)
		}
	}
	res, body := post(t, addr, "k", "")
	wantProblem(t, res, body, 409, "outcome_unknown", false)
	return addr
}

func TestListener_AResponseThatStallsEnds(t *testing.T) {
	stalls := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for _, up := range []*proxy.Upstream{upstream(t, stalls), upstream2(t, stalls)} {
		up.StallTimeout, up.BodyTimeout = shortStall, -1
		wantBrokenOff(t, up)
	}
}

func TestListener_ARequestThatIsNotTakenEnds(t *testing.T) {
	up := upstream2(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	up.StallTimeout, up.HeaderTimeout = shortStall, -1
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.MaxBody = 8 << 20 })
	for _, key := range []string{"k", ""} {
		res, body := post(t, addr, key, strings.Repeat("x", 8<<20))
		wantProblem(t, res, body, 504, "upstream_failed", false)
	}
}

// TestUpstream_ABodyWithoutAKeyHoldsUpNoCommandOverHTTP2 is about a server whose connections have a
// window for all bodies, as that of net/http does, and about a handler that does not read one.
func TestUpstream_ABodyWithoutAKeyHoldsUpNoCommandOverHTTP2(t *testing.T) {
	up := upstream2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
		_, _ = io.Copy(w, r.Body)
	})
	up.StallTimeout, up.HeaderTimeout = 5*time.Second, 5*time.Second
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
	anyone := &http.Client{Transport: clearHTTP2()}
	t.Cleanup(anyone.CloseIdleConnections)
	var sent atomic.Int64
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/events", io.TeeReader(strings.NewReader(strings.Repeat("x", 32<<20)), &countingWriter{&sent}))
	res, err := anyone.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for before := int64(-1); before != sent.Load(); time.Sleep(300 * time.Millisecond) {
		before = sent.Load()
	}
	res, body := post(t, addr, "k", "order")
	wantResponse(t, res, body, 200, "order")
}

type countingWriter struct{ n *atomic.Int64 }

func (c *countingWriter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

func TestListener_ADrippingResponseEnds(t *testing.T) {
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		for i := range 1_000_000 { // each byte comes in time
			if _, err := io.WriteString(w, "x"); err != nil || r.Context().Err() != nil || r.Header.Get("Accept") != "" && i == 100 {
				return
			}
			http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(time.Millisecond):
			}
		}
	}
	for _, up := range []*proxy.Upstream{upstream(t, drip), upstream2(t, drip)} {
		up.BodyTimeout = 50 * time.Millisecond
		addr := wantBrokenOff(t, up)
		for i, events := range []string{"text/event-stream", "Text/Event-Stream", "text/event-stream;charset=utf-8"} { // RFC 9110, section 8.3.1
			res, body := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"Idempotency-Key": {strconv.Itoa(i)}, "Accept": {events}}, "x")
			if res.StatusCode != 200 || len(body) != 101 {
				t.Errorf("HTTP/2 %v: an event stream, %s: %d, %d bytes", up.HTTP2, events, res.StatusCode, len(body))
			}
		}
	}
}

// TestListener_AResponseThatBreaksOffIs502 holds both versions of HTTP to the same: if
// nothing of the response was sent, the client learns what happened.
func TestListener_AResponseThatBreaksOffIs502(t *testing.T) {
	breaks := map[string]http.HandlerFunc{
		"too short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "short")
		},
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"reset, of an unknown length": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"reset content, and a body": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusResetContent)
			_, _ = io.WriteString(w, "x")
		},
		"no content, and a body": func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil { // HTTP/1.1
				_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\nx")
				conn.Close()
				return
			}
			w.WriteHeader(http.StatusNoContent) // net/http's server sends no body with it over HTTP/2 either
			panic(http.ErrAbortHandler)
		},
	}
	for what, h := range breaks {
		for _, up := range []*proxy.Upstream{upstream(t, h), upstream2(t, h)} {
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
			res, body := post(t, addr, "k", "x")
			wantProblem(t, res, body, 502, "upstream_failed", false)
			if res.Header.Get("Content-Length") == "10" {
				t.Errorf("%s, HTTP/2 %v: the response has the header of the one that broke off", what, up.HTTP2)
			}
			res, body = post(t, addr, "k", "x")
			wantProblem(t, res, body, 409, "outcome_unknown", false)
		}
	}
}

func TestListener_AClientThatLeavesALongResponseDoesNotMakeItsOutcomeUnknown(t *testing.T) {
	var runs atomic.Int32
	long := func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		_, _ = io.WriteString(w, strings.Repeat("x", 32<<20))
	}
	for _, up := range []*proxy.Upstream{upstream(t, long), upstream2(t, long)} {
		runs.Store(0)
		addr := orders(t, up, onlyonce.Config{HoldUnknown: true, Wait: time.Minute}, nil)
		c := dial(t, addr)
		_, _ = io.WriteString(c, post11+"Idempotency-Key: k\r\n\r\n")
		if _, err := io.ReadFull(c, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		res, body := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"Idempotency-Key": {"k"}}, "")
		if res.StatusCode != 200 || res.Header.Get("Idempotency-Replay") != "omitted" || runs.Load() != 1 {
			t.Errorf("HTTP/2 %v: a repeat gets %d %.80s after %d runs", up.HTTP2, res.StatusCode, body, runs.Load())
		}
	}
}
