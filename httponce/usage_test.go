package httponce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A stalled body sends so many bytes, and then nothing until it is told to end.
type stalled struct {
	sends int64
	read  atomic.Bool
	end   chan struct{}
}

func (b *stalled) Read(p []byte) (int, error) {
	b.read.Store(true)
	if b.sends > 0 {
		n := min(int64(len(p)), b.sends)
		b.sends -= n
		return int(n), nil
	}
	<-b.end
	return 0, io.ErrUnexpectedEOF
}

func (*stalled) Close() error { return nil }

// announcing is a request of a tenant that announces a body and does not send it.
func announcing(tenant, key string, length int64) (*http.Request, *stalled) {
	b := &stalled{end: make(chan struct{})}
	r := keyed("POST", "/orders", key, "")
	r.Header.Set("X-Tenant", tenant)
	r.Body, r.ContentLength = b, length
	return r, b
}

// sending is a request of a tenant that sends all of its body but the last byte.
func sending(tenant, key string, length int64) (*http.Request, *stalled) {
	r, b := announcing(tenant, key, length)
	b.sends = length - 1
	return r, b
}

// wantIdle fails unless all that was counted has been given back.
func wantIdle(t *testing.T, u *httponce.Usage) {
	t.Helper()
	if requests, bytes := u.Load(); requests != 0 || bytes != 0 {
		t.Errorf("in the end %d requests and %d bytes are counted", requests, bytes)
	}
}

func TestUsage_ARequestCountsBeforeItsBodyIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxInFlight, cfg.Usage = 2, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		var all sync.WaitGroup
		var bodies []*stalled
		for i := range 2 {
			r, b := announcing("greedy", strconv.Itoa(i), 1<<20)
			bodies = append(bodies, b)
			all.Go(func() { wantProblem(t, serve(h, r), 400, "body_unreadable") })
		}
		synctest.Wait()
		r, b := announcing("greedy", "more", 1<<20)
		if wantProblem(t, serve(h, r), 429, "too_many_requests"); b.read.Load() {
			t.Error("the body of a rejected request was read")
		}
		if requests, bytes := cfg.Usage.Load(); requests != 2 || bytes != 16<<10 {
			t.Errorf("%d requests and %d bytes are counted", requests, bytes)
		}
		for _, b := range bodies {
			close(b.end)
		}
		all.Wait()
		wantResponse(t, postAs(h, "greedy", "k", "x"), 201, "run 1 of x")
		wantIdle(t, cfg.Usage)
	})
}

func TestUsage_WhatIsStoredIsBoundedForATenantAndInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxStored, cfg.MaxTenantStored = 100_000, 30_000
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{Keep: 100 * time.Second}), counter(&runs), cfg)
		store := func(tenant string) (stored int) {
			for ; ; stored++ {
				if w := postAs(h, tenant, strconv.Itoa(int(runs.Load())), strings.Repeat("x", 10_000)); w.Code != 201 {
					if wantProblem(t, w, 429, "too_many_requests"); w.Header().Get("Retry-After") == "" {
						t.Error("no Retry-After")
					}
					return stored
				}
			}
		}
		for _, tenant := range []string{"a", "b", "c"} {
			if n := store(tenant); n != 3 {
				t.Errorf("%s stores %d answers", tenant, n)
			}
		}
		postAs(h, "d", "1", strings.Repeat("x", 10_000))
		wantProblem(t, postAs(h, "d", "2", "x"), 503, "overloaded")
		time.Sleep(40 * time.Second)
		wantResponse(t, postAs(h, "d", "2", "x"), 201, "")
		if n := store("a"); n != 1 {
			t.Errorf("after 40 of 100 seconds a stores %d more responses", n)
		}
	})
}

func TestUsage_RecordsCountAsStoredForTheirOwnKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxTenantStored, cfg.Usage = 30_000, new(httponce.Usage)
		var runs atomic.Int32
		long := httponce.Wrap(newGuard(onlyonce.Config{Keep: 1000 * time.Hour}), counter(&runs), cfg)
		short := httponce.Wrap(newGuard(onlyonce.Config{Keep: time.Minute}), counter(&runs), cfg)
		for i := range 3 {
			wantResponse(t, postAs(long, "a", strconv.Itoa(i), strings.Repeat("x", 9_000)), 201, "")
		}
		for i := range 100 {
			time.Sleep(time.Minute)
			wantResponse(t, postAs(short, "a", strconv.Itoa(i), "x"), 201, "")
		}
		wantResponse(t, postAs(long, "a", "3", strings.Repeat("x", 9_000)), 201, "")
		for _, h := range []http.Handler{long, short} {
			wantProblem(t, postAs(h, "a", "last", "x"), 429, "too_many_requests")
		}
	})
}

func TestUsage_WhateverACommandLeavesInTheStoreCountsAsStored(t *testing.T) {
	const most = 20_000
	cfg := byTenant
	cfg.MaxStored, cfg.MaxTenantStored = 1<<30, most
	long := strings.Repeat("x", 4000)
	for _, c := range []struct {
		name   string
		record int // its size
		handle http.HandlerFunc
		inTx   func(http.ResponseWriter, *http.Request, order) error
	}{
		{"an unknown outcome", 512, func(w http.ResponseWriter, r *http.Request) { httponce.Unknown(r, nil) }, nil},
		{"an unknown outcome of a response that streams", 512, func(w http.ResponseWriter, r *http.Request) {
			httponce.Unknown(r, nil)
			w.(http.Flusher).Flush()
		}, nil},
		{"a panic with a long text", 2512, func(http.ResponseWriter, *http.Request) { panic(long) }, nil},
		{"a goroutine that ends", 512, func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, nil},
		{"a transaction that is rolled back", 4512, nil, func(w http.ResponseWriter, _ *http.Request, _ order) error {
			w.WriteHeader(422)
			io.WriteString(w, long)
			return errors.New("on purpose")
		}},
		{"a transaction of unknown outcome", 512, nil, func(_ http.ResponseWriter, r *http.Request, _ order) error {
			httponce.Unknown(r, nil)
			return errors.New("on purpose")
		}},
		{"a response that is not stored", 0, func(w http.ResponseWriter, r *http.Request) { httponce.DontStore(r) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			guard := onlyonce.NewTx(newShop(), onlyonce.Config{HoldUnknown: true})
			var h http.Handler
			if c.handle != nil {
				h = httponce.Wrap(guard.Guard, c.handle, cfg)
			} else {
				h = httponce.WrapTx(guard, c.inTx, cfg)
			}
			const tries = 100
			taken := tries
			for i := range tries {
				if postInGoroutine(h, strconv.Itoa(i)).Code == 429 {
					taken = i
					break
				}
			}
			want := tries
			if c.record > 0 {
				want = most/c.record + 1
			}
			if taken > want {
				t.Errorf("%d requests ran before the limit, want at most %d", taken, want)
			}
			if c.record == 0 && taken < tries {
				t.Errorf("the limit was reached after %d requests that left nothing", taken)
			}
		})
	}
}

// postInGoroutine sends a request to a handler that may panic or end its
// goroutine.
func postInGoroutine(h http.Handler, key string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		r := keyed("POST", "/orders", key, "x")
		r.Header.Set("X-Tenant", "a")
		h.ServeHTTP(w, r)
	}()
	<-done
	return w
}

func TestUsage_WhateverBecomesOfARequestItsCountersComeBack(t *testing.T) {
	cfg := byTenant
	cfg.Usage = new(httponce.Usage)
	guard := onlyonce.NewTx(newShop(), onlyonce.Config{Lease: time.Minute})
	h := httponce.Wrap(guard.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/panics":
			w.Write(make([]byte, 1<<19))
			panic("on purpose")
		case "/aborts":
			panic(http.ErrAbortHandler)
		case "/ends":
			runtime.Goexit()
		case "/streams":
			w.Write(make([]byte, 3<<20))
			w.(http.Flusher).Flush()
		case "/hijacks":
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
				c.Close()
			}
		default:
			w.Write(make([]byte, 1<<19))
		}
	}), cfg)
	inTx := httponce.WrapTx(guard, func(w http.ResponseWriter, r *http.Request, _ order) error {
		w.Write(make([]byte, 1<<19))
		if r.URL.Path == "/tx/fails" {
			return errors.New("on purpose")
		}
		return nil
	}, cfg)
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/tx/", inTx)
	s := newServer(t, mux, false)
	body := strings.Repeat("b", 1<<17)
	var all sync.WaitGroup
	for i := range 120 {
		all.Go(func() {
			path := []string{"/panics", "/aborts", "/ends", "/streams", "/hijacks", "/ok", "/tx/ok", "/tx/fails"}[i%8]
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nX-Tenant: t\r\n", path)
			if i%3 > 0 {
				head += fmt.Sprintf("Idempotency-Key: k%d\r\n", i/2)
			}
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			switch i % 4 {
			case 0: // half a body, and gone
				fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body[:len(body)/2])
			case 1: // half a chunked body, and gone
				fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", head, len(body), body[:len(body)/2])
			case 2:
				fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body) // does not wait for the response
			default:
				fmt.Fprintf(c, "%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body)
				io.Copy(io.Discard, c)
			}
		})
	}
	all.Wait()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if requests, bytes := cfg.Usage.Load(); requests == 0 && bytes == 0 {
			return
		}
	}
	wantIdle(t, cfg.Usage)
}

func TestUsage_ARequestThatEndsWhileItWaitsForMemoryLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.Usage = 4<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		first, body := sending("a", "1", 1<<20)
		go serve(h, first)
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		second, _ := sending("a", "2", 1<<20)
		gone := make(chan struct{})
		go func() { serve(h, second.WithContext(ctx)); close(gone) }()
		synctest.Wait()
		cancel()
		<-gone
		if requests, bytes := cfg.Usage.Load(); requests != 1 || bytes != 1<<20 {
			t.Errorf("%d requests and %d bytes are counted", requests, bytes)
		}
		close(body.end)
		synctest.Wait()
		wantIdle(t, cfg.Usage)
	})
}

func TestUsage_HandlersOfOneGuardShareTheirMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, cfg := newGuard(onlyonce.Config{}), byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory = 2<<20, 2<<20
		var runs atomic.Int32
		first := httponce.Wrap(guard, counter(&runs), cfg)
		second := httponce.Wrap(guard, counter(&runs), cfg)
		other := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		r, body := sending("a", "1", 1<<20)
		go serve(first, r)
		synctest.Wait()
		long := strings.Repeat("x", 1<<20)
		wantProblem(t, postAs(second, "b", "2", long), 503, "overloaded")
		wantResponse(t, postAs(other, "b", "2", long), 201, "")
		close(body.end)
		synctest.Wait()
		wantResponse(t, postAs(second, "b", "2", long), 201, "")
	})
}

func TestUsage_TheApplicationsOwnRejectionComesBeforeTheBody(t *testing.T) {
	cfg := byTenant
	cfg.Reject = func(_ *http.Request, tenant string) *httponce.Problem {
		if tenant != "poor" {
			return nil
		}
		return &httponce.Problem{Code: "payment_required", Status: 402, Detail: "The bill is not paid."}
	}
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	r, b := announcing("poor", "k", 1<<20)
	if w := serve(h, r); w.Code != 402 || b.read.Load() || !strings.Contains(w.Body.String(), "The bill is not paid.") {
		t.Errorf("response %d %s", w.Code, w.Body)
	}
	wantResponse(t, postAs(h, "rich", "k", "x"), 201, "run 1 of x")
}
