package httponce_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestSecurity_InFlightCapOfATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxInFlight = 1
		end := make(chan struct{})
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }), cfg)
		go postAs(h, "greedy", "1", "x")
		synctest.Wait()
		wantProblem(t, postAs(h, "greedy", "2", "x"), 429, "too_many_requests")
		close(end)
		wantResponse(t, postAs(h, "other", "1", "x"), 200, "")
	})
}

func TestSecurity_ARequestIsInFlightUntilItsLastByteLeaves(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"buffered": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answer") },
		"streamed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "6")
			w.(http.Flusher).Flush()
			io.WriteString(w, "answer")
		},
	} {
		cfg := single
		cfg.MaxInFlight = 1
		h := httponce.Wrap(newGuard(onlyonce.Config{}), handler, cfg)
		for _, replay := range []string{"", "true"} {
			var before, after int
			w := &tap{ResponseRecorder: httptest.NewRecorder()}
			w.before = func(sent int) {
				switch sent {
				case 0:
					before = post(h, "other", "x").Code
				case len("answe"):
					after = post(h, "other", "x").Code
				}
			}
			h.ServeHTTP(w, keyed(http.MethodPost, "/orders", "k", "x"))
			wantResponse(t, w.ResponseRecorder, 200, "answer")
			if before != 429 || after != 200 || w.Header().Get("Idempotency-Replayed") != replay {
				t.Errorf("%s: while the response leaves another request gets %d, before its last byte %d, %v", name, before, after, w.Header())
			}
		}
	}
}

func TestSecurity_HugeBodies(t *testing.T) {
	var runs atomic.Int32
	s := newServer(t, httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single), false)
	if got := raw(t, s, "POST / HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\nContent-Length: 1048577\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 413 ") {
		t.Errorf("declared too large: %s", got)
	}
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n")
		for chunk := "10000\r\n" + strings.Repeat("x", 0x10000) + "\r\n"; ; {
			if _, err := io.WriteString(conn, chunk); err != nil {
				return
			}
		}
	}()
	head := make([]byte, 12)
	if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 413" {
		t.Errorf("chunks without end: %q, %v", head, err)
	}
	if runs.Load() != 0 {
		t.Error("it ran")
	}
}

func TestSecurity_ABombIsNotUnpacked(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 4<<20))
	z.Close()
	var got []byte
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
	}), single)
	r := keyed("POST", "/orders", "k", bomb.String())
	r.Header.Set("Content-Encoding", "gzip")
	if wantResponse(t, serve(h, r), 200, ""); !bytes.Equal(got, bomb.Bytes()) {
		t.Fatalf("the handler got %d bytes, want the %d that were sent", len(got), bomb.Len())
	}
}

func TestSecurity_TenThousandWaitersOnOneKey(t *testing.T) {
	const duplicates, waiting = 10_000, 9_000
	began, end := make(chan struct{}), make(chan struct{})
	answer := bytes.Repeat([]byte("a"), 1024)
	cfg := single
	cfg.MaxInFlight = duplicates + 1
	h := httponce.Wrap(newGuard(onlyonce.Config{Wait: time.Hour, MaxWaiters: 2 * duplicates, MaxWaitersPerID: waiting}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-end
		w.Write(answer)
	}), cfg)
	body := strings.Repeat("b", 1024)
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	go post(h, "k", body)
	<-began
	var answered, rejected, other atomic.Int32
	var all sync.WaitGroup
	for range duplicates {
		all.Go(func() {
			switch w := post(h, "k", body); {
			case w.Code == 200 && bytes.Equal(w.Body.Bytes(), answer):
				answered.Add(1)
			case w.Code == 409 && w.Header().Get("Retry-After") != "":
				rejected.Add(1)
			default:
				other.Add(1)
			}
		})
	}
	for rejected.Load() < duplicates-waiting {
		runtime.Gosched()
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	grown := int64(during.HeapAlloc) - int64(before.HeapAlloc)
	close(end)
	all.Wait()
	if answered.Load() != waiting || rejected.Load() != duplicates-waiting || other.Load() != 0 {
		t.Errorf("%d answered, %d rejected, %d others", answered.Load(), rejected.Load(), other.Load())
	}
	t.Logf("the heap grew by %d KiB and the stacks by %d KiB while they waited", grown>>10, (during.StackInuse-before.StackInuse)>>10)
	if grown > 100<<20 {
		t.Error("that is too much")
	}
}

func TestSecurity_KeyExhaustion(t *testing.T) {
	store := memstore.New(memstore.Config{MaxRecords: 10})
	cfg := byTenant
	cfg.MaxNewKeys = 5
	var runs atomic.Int32
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), counter(&runs), cfg)
	for i := range 20 {
		w := postAs(h, "greedy", fmt.Sprint(i), "x")
		if i >= 5 {
			wantProblem(t, w, 429, "too_many_requests")
		}
	}
	wantResponse(t, postAs(h, "other", "k", "x"), 201, "run 6 of x")
	for _, tenant := range []string{"a", "b", "c", "d"} {
		wantResponse(t, postAs(h, tenant, "k", "x"), 201, "")
	}
	wantProblem(t, postAs(h, "e", "k", "x"), 503, "store_unavailable") // full: nothing is dropped for it
	wantResponse(t, postAs(h, "other", "k", "x"), 201, "run 6 of x")
}
