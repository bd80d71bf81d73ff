package conform_test

import (
	"bytes"
	"context"
	"errors"
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

	"github.com/onlyonce-go/onlyonce/conform"
)

func TestWire_WhatCantBeCheckedIsAnErrorAndSendsLittle(t *testing.T) {
	t.Parallel()
	var asked sync.Map // requests by case; a request without a waiting client may arrive late
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := asked.LoadOrStore(r.Header.Get("X-Case"), new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/orders", http.StatusTemporaryRedirect)
		case "/picky":
			http.Error(w, "the amount of "+r.Header.Get("Authorization")+" is missing", http.StatusBadRequest)
		case "/limited":
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/hangs":
			<-r.Context().Done()
		case "/count":
			_, _ = io.WriteString(w, `{"n":7,"list":[],"text":"x"}`)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	}))
	t.Cleanup(server.Close)
	body := []byte(`{"n":1}`)
	for i, c := range []struct {
		why    string
		target conform.Target
		cfg    conform.Config
		want   string
		asks   int64 // at most
	}{
		{"no URL", conform.Target{}, conform.Config{}, "is not an http or https URL", 0},
		{"a URL of a file", conform.Target{URL: "file:///etc/passwd"}, conform.Config{}, "is not an http or https URL", 0},
		{"a password in it", conform.Target{URL: "http://u:hunter2@127.0.0.1/"}, conform.Config{}, "pass them in a header", 0},
		{"no such row", conform.Target{URL: server.URL}, conform.Config{Only: []string{"replays"}}, `there is no row "replays": write one of replay, `, 0},
		{"no row left", conform.Target{URL: server.URL}, conform.Config{Only: []string{"replay"}, Skip: []string{"replay"}}, "no row is selected", 0},
		{"a burst of one", conform.Target{URL: server.URL}, conform.Config{Burst: 1}, "write 2 to 64", 0},
		{"a timeout below 0", conform.Target{URL: server.URL}, conform.Config{Timeout: -1}, "write a positive one", 0},
		{"a bad method", conform.Target{URL: server.URL, Method: "PO ST"}, conform.Config{}, "is not the name of a method or a header", 0},
		{"a bad header", conform.Target{URL: server.URL, Header: http.Header{"A": {"b\r\nc: d"}}}, conform.Config{}, "contains a line break", 0},
		{"a header of ours", conform.Target{URL: server.URL, Header: http.Header{"content-length": {"3"}}}, conform.Config{}, "because it is set for every request", 0},
		{"a key", conform.Target{URL: server.URL, Header: http.Header{"Idempotency-Key": {"k"}}}, conform.Config{}, "leave it out", 0},
		{"credentials for another server", conform.Target{URL: server.URL, CountURL: "http://elsewhere.example/"}, conform.Config{}, "is not on the same server", 0},
		{"a count of nothing", conform.Target{URL: server.URL, Count: "/n"}, conform.Config{}, "without CountURL", 0},
		{"no such field", conform.Target{URL: server.URL, Body: body, Fresh: "/m"}, conform.Config{}, "/m points to nothing", 0},
		{"nobody there", conform.Target{URL: "http://127.0.0.1:1/"}, conform.Config{}, "connect: ", 0},
		{"a redirect", conform.Target{URL: server.URL + "/moved"}, conform.Config{}, `it redirects to "/orders": use that URL`, 1},
		{"a rejection", conform.Target{URL: server.URL + "/picky", Header: http.Header{"Authorization": {"Bearer s3cret"}}}, conform.Config{}, `got 400, where a success was expected: "the amount of [redacted] is missing"`, 2},
		{"too many", conform.Target{URL: server.URL + "/limited"}, conform.Config{}, "keeps responding with 429", 3},
		{"a token in a query", conform.Target{URL: server.URL + "/picky?api_key=s3cret%2Dkey"}, conform.Config{}, "/picky?api_key=[redacted] got 400", 2},
		{"no response", conform.Target{URL: server.URL + "/hangs"}, conform.Config{Timeout: 2 * time.Second}, "got nothing (not within 2s)", 1},
		{"no time", conform.Target{URL: server.URL + "/hangs"}, conform.Config{Within: 50 * time.Millisecond}, "it took longer than 50ms", 1},
		{"a count that is not there", conform.Target{URL: server.URL, CountURL: "/count", Count: "/m"}, conform.Config{}, "/m points to nothing", 1},
		{"a count of text", conform.Target{URL: server.URL, CountURL: "/count", Count: "/text"}, conform.Config{}, "must be an integer or an array", 1},
		{"a count that does not grow", conform.Target{URL: server.URL, CountURL: "/count", Count: "/n"}, conform.Config{}, "the count was 7 before a command, and is 7 after it got 201", 3},
		{"an array that does not grow", conform.Target{URL: server.URL, CountURL: "/count", Count: "/list"}, conform.Config{}, "the count was 0 before a command, and is 0", 3},
		{"no count", conform.Target{URL: server.URL, CountURL: "/picky"}, conform.Config{}, "the count can't be looked up", 1},
	} {
		id := fmt.Sprint("case-", i)
		if c.target.Header == nil {
			c.target.Header = http.Header{}
		}
		c.target.Header.Set("X-Case", id)
		report, err := conform.Run(t.Context(), c.target, c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: a credential is in %v", c.why, err)
		}
		if n, ok := asked.Load(id); ok && (n.(*atomic.Int64).Load() > min(c.asks, int64(report.Requests))) {
			t.Errorf("%s: %d requests came, of %d", c.why, n.(*atomic.Int64).Load(), report.Requests)
		}
	}
}

// A late context ends a while after its deadline.
type late struct {
	context.Context
	deadline time.Time
}

func (c late) Deadline() (time.Time, bool) { return c.deadline, true }

func TestWire_TimeThatIsOverIsTheReasonAlsoIfAConnectionNoticesFirst(t *testing.T) {
	t.Parallel()
	target := serve(t, newShop())
	over := errors.New("time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(over) })
	if _, err := conform.Run(late{ctx, time.Now()}, target, conform.Config{}); !errors.Is(err, over) {
		t.Error(err)
	}
}

func TestWire_AnEmptyBodyHasALength(t *testing.T) {
	t.Parallel()
	var lengths sync.Map
	target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lengths.Store(r.Method+" "+r.Header.Get("Content-Length")+r.Header.Get("Content-Type"), true)
		w.WriteHeader(http.StatusCreated)
	}))
	target.Body, target.Fresh, target.CountURL, target.Count = nil, "", "", ""
	run(t, target, conform.Config{Only: []string{"replay", "cut-off"}})
	if _, ok := lengths.Load("POST 0"); !ok {
		t.Error("no POST had a length of 0")
	}
}

func TestWire_ACommandThatFailsInBetweenIsNoVerdict(t *testing.T) {
	t.Parallel()
	for id, good := range map[string]int64{"mismatch": 3, "forms": 3, "case": 7, "repeated": 5, "problem": 3, "tenants": 3, "operation": 3, "safe-method": 3} {
		next, posts := newLayer("the first of two keys counts", newShop()), new(atomic.Int64)
		target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				if posts.Add(1) > good && r.Header.Get("Idempotency-Key") != "" {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
			}
			next.ServeHTTP(w, r)
		}))
		target.CountURL, target.Count = "", ""
		report, err := conform.Run(t.Context(), target, conform.Config{Only: []string{id}})
		if err == nil || !strings.Contains(err.Error(), id+": ") || !strings.Contains(err.Error(), "got 502") || len(report.Rows) > 0 {
			t.Errorf("%s: %v, %+v", id, err, report.Rows)
		}
	}
}

func TestWire_SpacesAroundAKeyDoNotChangeIt(t *testing.T) {
	t.Parallel()
	target := serve(t, newLayer("", newShop()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	behind := strings.TrimSuffix(strings.TrimPrefix(target.URL, "http://"), "/orders")
	go func() { // a forwarder that does not trim the key, before a server that does
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request := make([]byte, 4096)
				n, _ := conn.Read(request) // it comes whole: it was written at once
				up, err := net.Dial("tcp", behind)
				if err != nil {
					return
				}
				defer up.Close()
				_, _ = up.Write(bytes.ReplaceAll(request[:n], []byte("Key:   "), []byte("Key: x")))
				_, _ = io.Copy(conn, up)
			}()
		}
	}()
	target.URL, target.CountURL, target.Count = "http://"+l.Addr().String()+"/orders", "", ""
	wantRows(t, run(t, target, conform.Config{Only: []string{"forms"}}), []string{"forms"}, []string{})
}

func TestWire_ATargetMayBeReachedOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(newLayer("", newShop()))
	t.Cleanup(server.Close)
	target := conform.Target{URL: server.URL + "/orders", Body: []byte(`{"note":"{{fresh}}"}`)}
	if _, err := conform.Run(t.Context(), target, conform.Config{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
	target.TLS = server.Client().Transport.(*http.Transport).TLSClientConfig
	wantRows(t, run(t, target, conform.Config{Only: []string{"replay", "burst"}}), []string{}, []string{})
}

func TestWire_ARequestThatComesTooSoonIsSentAgain(t *testing.T) {
	t.Parallel()
	next, n := newLayer("", newShop()), new(atomic.Int64)
	target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) <= 2 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	}))
	wantRows(t, run(t, target, conform.Config{Only: []string{"replay"}}), []string{}, []string{})
}

func TestWire_ACountOfOthersCommandsTooIsNotTrusted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why   string
		count func(sold int64) int64
		want  string
	}{
		{"a page that is full", func(sold int64) int64 { return min(sold, 20) }, "no longer grew"},
		{"others that write", func(sold int64) int64 { return sold * sold }, "other clients write there"},
	} {
		s := newShop()
		report, err := conform.Run(t.Context(), serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/sold" {
				fmt.Fprintf(w, `{"sold":[{"n":%d}]}`, c.count(s.sold.Load()))
				return
			}
			s.ServeHTTP(w, r)
		})), quick)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(report.Rows) > 0 {
			t.Errorf("%s: %v, and %d rows", c.why, err, len(report.Rows))
		}
	}
}

func TestWire_ACountMayBeOfOneCommandOnly(t *testing.T) {
	t.Parallel()
	target := serve(t, newLayer("another body runs", newShop()))
	target.CountURL, target.Count = "/sold/{{fresh}}", ""
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // others write, too
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			resp, err := http.Post(target.URL, "application/json", strings.NewReader(`{"note":"another"}`))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body) // for the connection to be used again
			resp.Body.Close()
		}
	}()
	defer func() { close(stop); <-stopped }()
	report := run(t, target, quick)
	wantRows(t, report, []string{"mismatch"}, nil)
	if detail := report.Rows[1].Detail; !strings.Contains(detail, "took effect") {
		t.Errorf("it was not counted: %s", detail)
	}
}
