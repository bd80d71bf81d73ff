package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestOutcome_ALargeResponseIsSentWholeAndNotStored(t *testing.T) {
	var runs atomic.Int32
	large := strings.Repeat("0123456789", 20_000)
	for _, chunked := range []bool{false, true} {
		addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			if !chunked {
				w.Header().Set("Content-Length", fmt.Sprint(len(large)))
			}
			io.WriteString(w, large)
		}), onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.MaxResponse = 50_000 })
		res, body := post(t, addr, "k", "x")
		if body != large {
			t.Fatalf("%d: %d bytes", res.StatusCode, len(body))
		}
		res, body = post(t, addr, "k", "x")
		wantResponse(t, res, body, 200, "")
		if body != "" || res.Header.Get("Idempotency-Replay") != "omitted" {
			t.Errorf("the repeat: %d bytes, %v", len(body), res.Header)
		}
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestOutcome_ATruncatedLargeResponseIsAnErrorForTheClientAndUnknown(t *testing.T) {
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlong\r\n4\r\nlong\r\n", false
	})
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.MaxResponse = 6 })
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", "k")
	if res, err := client.RoundTrip(r); err == nil {
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil {
			t.Errorf("the client takes %q for the whole", body)
		}
	}
	res, body := post(t, addr, "k", "x")
	wantProblem(t, res, body, 409, "outcome_unknown", false)
}

func TestOutcome_AnEventStreamIsNotHeldBackAndIsRecorded(t *testing.T) {
	next, runs := make(chan bool), atomic.Int32{}
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-next
		io.WriteString(w, "data: 2\n\n")
	}), onlyonce.Config{}, nil)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", "k")
	res, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 9)
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	next <- true
	rest, err := io.ReadAll(res.Body)
	if string(first)+string(rest) != "data: 1\n\ndata: 2\n\n" {
		t.Fatalf("%q %q %v", first, rest, err)
	}
	again, body := post(t, addr, "k", "x")
	wantResponse(t, again, body, 200, "data: 1\n\ndata: 2\n\n")
	if runs.Load() != 1 || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d runs, %v", runs.Load(), again.Header)
	}
}

func TestOutcome_TrailersOfAKeyedResponseAreSentAndReplayed(t *testing.T) {
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2;a=b\r\nhi\r\n0\r\nX-Sum: 1\r\nSet-Cookie: c\r\nContent-Length: 9\r\n\r\n", true
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for range 2 {
		res, body := post(t, addr, "k", "x")
		wantResponse(t, res, body, 200, "hi")
		if res.Trailer.Get("X-Sum") != "1" || len(res.Trailer) != 1 {
			t.Errorf("trailer %v", res.Trailer)
		}
	}
}

func TestOutcome_TrailersOfAKeyedResponseByHTTP2AreSentAndReplayed(t *testing.T) {
	up := upstream2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("announced") {
			w.Header().Set("Trailer", "X-Sum")
		}
		_, _ = io.WriteString(w, "hi")
		_ = http.NewResponseController(w).Flush() // otherwise its length is announced
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for _, query := range []string{"", "", "?announced", "?announced"} {
		res, body := send(t, "POST", "http://"+addr+"/v1/orders"+query, http.Header{"Idempotency-Key": {"k" + strings.TrimPrefix(query, "?")}}, "x")
		wantResponse(t, res, body, 200, "hi")
		if res.Trailer.Get("X-Sum") != "1" || len(res.Trailer) != 1 {
			t.Errorf("%q: trailer %v", query, res.Trailer)
		}
	}
}
