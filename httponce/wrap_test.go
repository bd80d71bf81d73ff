package httponce_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// single is a Config that is otherwise the default.
var single = httponce.Config{Tenant: httponce.SingleTenant}

func newGuard(cfg onlyonce.Config) *onlyonce.Guard {
	return onlyonce.New(memstore.New(memstore.Config{}), cfg)
}

// post sends a keyed POST to a handler in this process.
func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	return serve(h, keyed(http.MethodPost, "/orders", key, body))
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func keyed(method, target, key, body string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return r
}

// counter responds with 201, the number of its run, and the request's body.
func counter(runs *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "run %d of %s", runs.Add(1), body)
	})
}

// wantResponse fails unless the response has the status and, if it is not empty, the
// body.
func wantResponse(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status || body != "" && w.Body.String() != body {
		t.Fatalf("response %d %q with %v, want %d %q", w.Code, w.Body, w.Header(), status, body)
	}
}

// wantProblem fails unless the response is the problem of that code.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), `"code":"`+code+`"`) {
		t.Fatalf("response %d %q, want %d with code %s", w.Code, w.Body, status, code)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("a problem's content type is %q", ct)
	}
	if w.Header().Get("Idempotency-Replayed") != "" {
		t.Fatal("a problem says that it is a replay")
	}
}

func TestWrap_ARepeatGetsTheFirstResponse(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
	first := post(h, "k", `{"n":1}`)
	wantResponse(t, first, 201, `run 1 of {"n":1}`)
	if first.Header().Get("Idempotency-Replayed") != "" || first.Header().Get("Idempotency-Expires") == "" {
		t.Fatalf("the first response has %v", first.Header())
	}
	again := post(h, "k", `{"n":1}`)
	wantResponse(t, again, 201, `run 1 of {"n":1}`)
	if again.Header().Get("Idempotency-Replayed") != "true" || again.Header().Get("Location") != "/orders/1" {
		t.Fatalf("the repeat has %v", again.Header())
	}
	wantResponse(t, post(h, "other", `{"n":1}`), 201, `run 2 of {"n":1}`)
}

func TestWrap_ADifferentRequestWithAUsedKeyIsRejected(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
	post(h, "k", `{"n":1}`)
	wantProblem(t, post(h, "k", `{"n":2}`), 422, "idempotency_key_reused")
	wantResponse(t, post(h, "k", `{"n":1}`), 201, `run 1 of {"n":1}`)
}

func TestWrap_ADuplicateOfARunningRequestIsRejected(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-end
	}), single)
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- post(h, "k", "x") }()
	<-began
	busy := post(h, "k", "x")
	wantProblem(t, busy, 409, "request_in_progress")
	if s := busy.Header().Get("Retry-After"); s != "5" {
		t.Fatalf("Retry-After: %q", s)
	}
	wantProblem(t, post(h, "k", "y"), 422, "idempotency_key_reused")
	close(end)
	wantResponse(t, <-done, 200, "")
	wantResponse(t, post(h, "k", "x"), 200, "")
}

var (
	noTime time.Time
	silent = log.New(io.Discard, "", 0)
)

// lookup returns the record of the request that post sends with the key.
func lookup(t *testing.T, s onlyonce.Store, key string) onlyonce.Record {
	t.Helper()
	rec, err := s.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// wantPanic fails unless f panics with v.
func wantPanic(t *testing.T, v any, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if p := recover(); p != v {
			t.Fatalf("panic %v, want %v", p, v)
		}
	}()
	f()
}

func TestWrap_OfManyParallelRequestsWithOneKeyOneRuns(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var runs atomic.Int32
		s := newServer(t, httponce.Wrap(newGuard(onlyonce.Config{Wait: time.Minute}), counter(&runs), single), http2)
		answers := make(chan string)
		for range 64 {
			go func() {
				got, _ := fetch(t, s.Client(), s.URL, "k")
				answers <- got.Body
			}()
		}
		for range 64 {
			if got := <-answers; got != `run 1 of {"n":1}` {
				t.Errorf("response %q", got)
			}
		}
	}
}

func TestWrap_AHandlerSeesTheRequestAsItWasSent(t *testing.T) {
	var seen string
	s := newServer(t, httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		seen = fmt.Sprint(string(body), err, r.ContentLength, r.TransferEncoding, r.Trailer, r.Body == http.NoBody)
	}), single), false)
	const head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
	raw(t, s, head+"Idempotency-Key: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n")
	if want := "abcde<nil> -1 [chunked] map[X-Sum:[5]] false"; seen != want {
		t.Errorf("saw %s, want %s", seen, want)
	}
	raw(t, s, head+"Idempotency-Key: b\r\nContent-Length: 0\r\n\r\n")
	if want := "<nil> 0 [] map[] true"; seen != want {
		t.Errorf("saw %s, want %s", seen, want)
	}
	r, err := http.NewRequest("POST", s.URL, strings.NewReader("expected"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "c")
	r.Header.Set("Expect", "100-continue")
	if _, err := s.Client().Do(r); err != nil {
		t.Fatal(err)
	}
	if want := "expected<nil> 8 [] map[] false"; seen != want {
		t.Errorf("saw %s, want %s", seen, want)
	}
}
