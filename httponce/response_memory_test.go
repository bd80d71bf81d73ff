package httponce_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
	"weak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestResponseMemory_ResponsesForWhichThereIsNoMemoryAreNotStoredOrReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := single
		cfg.MaxBody, cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 1000, 120_000, 120_000, new(httponce.Usage)
		guard := onlyonce.NewTx(newShop(), onlyonce.Config{})
		answer := strings.Repeat("0123456789", 8000)
		began, end := make(chan struct{}, 1), make(chan struct{})
		h := httponce.Wrap(guard.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(answer); i += 8000 {
				io.WriteString(w, answer[i:i+8000])
			}
			if r.URL.Path == "/holds" {
				began <- struct{}{}
				<-end
			}
		}), cfg)
		wantResponse(t, post(h, "stored", ""), 200, answer)
		wantResponse(t, post(h, "stored", ""), 200, answer)
		go serve(h, keyed("POST", "/holds", "holds", ""))
		<-began
		wantResponse(t, post(h, "k", ""), 200, answer)
		if w := post(h, "k", ""); w.Header().Get("Idempotency-Replay") != "omitted" || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("the repeat has %v", w.Header())
		}
		wantProblem(t, post(h, "stored", ""), 503, "overloaded")
		inTx := httponce.WrapTx(guard, func(w http.ResponseWriter, _ *http.Request, _ order) error {
			_, err := io.WriteString(w, answer)
			return err
		}, cfg)
		wantProblem(t, post(inTx, "tx", ""), 503, "overloaded")
		close(end)
		synctest.Wait()
		wantResponse(t, post(h, "stored", ""), 200, answer)
		wantResponse(t, post(inTx, "tx", ""), 200, answer)
		wantIdle(t, cfg.Usage)
	})
}

func TestResponseMemory_TheHeaderOfAReplayCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := single
		cfg.MaxBody, cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 1000, 120_000, 120_000, new(httponce.Usage)
		long := strings.Repeat("x", 80_000)
		began, end := make(chan struct{}), make(chan struct{})
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/longest":
				w.Header().Set("X-Long", long+long)
				return
			case "/orders":
				w.Header().Set("X-Long", long)
				return
			}
			io.WriteString(w, long)
			close(began)
			<-end
		}), cfg)
		wantResponse(t, post(h, "stored", ""), 200, "")
		wantResponse(t, post(h, "stored", ""), 200, "")
		go serve(h, keyed("POST", "/holds", "holds", ""))
		<-began
		w := post(h, "stored", "")
		close(end)
		synctest.Wait()
		wantProblem(t, w, 503, "overloaded")
		if w := post(h, "stored", ""); w.Header().Get("Idempotency-Replayed") != "true" || w.Header().Get("X-Long") != long {
			t.Errorf("%d, Idempotency-Replayed %q", w.Code, w.Header().Get("Idempotency-Replayed"))
		}
		for range 2 { // it is longer than all memory
			if w := serve(h, keyed("POST", "/longest", "longest", "")); w.Code != 200 || w.Header().Get("X-Long") != long+long {
				t.Errorf("%d for a header that is longer than all memory", w.Code)
			}
		}
		wantIdle(t, cfg.Usage)
	})
}

// A takesNothing is a client that takes nothing of a response's body until it is told to.
type takesNothing struct {
	*httptest.ResponseRecorder
	began, end chan struct{}
	once       sync.Once
}

func newTakesNothing() *takesNothing {
	return &takesNothing{ResponseRecorder: httptest.NewRecorder(), began: make(chan struct{}), end: make(chan struct{})}
}

func (s *takesNothing) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	<-s.end
	return s.ResponseRecorder.Write(p)
}

// serveStuck serves a request until its client is to take the response's body. What
// it returns lets the client take it.
func serveStuck(t *testing.T, h http.Handler, r *http.Request) (take func()) {
	w, done := newTakesNothing(), make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(w, r)
	}()
	select {
	case <-w.began:
	case <-done:
		t.Errorf("answered at once: %d %s", w.Code, w.Body)
	}
	return func() {
		close(w.end)
		<-done
	}
}

func TestResponseMemory_ClientsThatReadNothingKeepOutNoBodies(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	answers := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, long)
		if r.URL.Path == "/streamed" {
			_, _ = io.WriteString(w, long)
		}
	}
	for name, c := range map[string]struct {
		path, body, key string // %d: another for each
		before          bool   // the response is there already
	}{
		"replayed":           {path: "/orders", key: "k", before: true},
		"the first":          {path: "/orders", key: "k%d"},
		"with a long body":   {path: "/orders", key: "k%d", body: long},
		"streamed":           {path: "/streamed", key: "k%d", body: long},
		"a long replay's":    {path: "/orders", key: "k", body: long, before: true},
		"of unknown lengths": {path: "/streamed", key: "k%d"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := byTenant
				cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 6<<20, 6<<20, new(httponce.Usage)
				h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(answers), cfg)
				request := func(i int) *http.Request {
					r := keyed("POST", c.path, strings.ReplaceAll(c.key, "%d", strconv.Itoa(i)), c.body)
					r.Header.Set("X-Tenant", "greedy")
					return r
				}
				if c.before {
					serve(h, request(0))
				}
				var takes []func()
				for i := range 4 {
					takes = append(takes, serveStuck(t, h, request(i)))
				}
				if _, bytes := cfg.Usage.Load(); bytes > 4<<20 {
					t.Errorf("%d bytes are counted", bytes)
				}
				for _, body := range []string{"x", long} {
					if w := postAs(h, "other", "k"+strconv.Itoa(len(body)), body); w.Code != 200 {
						t.Errorf("a body of %d bytes: %d %s", len(body), w.Code, w.Body)
					}
				}
				for _, take := range takes {
					take()
				}
				wantIdle(t, cfg.Usage)
			})
		})
	}
}

// of returns a request of a tenant.
func of(tenant, path, key string) *http.Request {
	r := keyed("POST", path, key, "")
	r.Header.Set("X-Tenant", tenant)
	return r
}

// aMegabyte responds with one and counts its runs. Under /flushed it streams.
func aMegabyte(runs *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(1<<20))
		for i := range 16 {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				panic(err)
			}
			if i == 0 && r.URL.Path == "/flushed" {
				w.(http.Flusher).Flush()
			}
		}
	})
}

// wantMegabyte fails unless aMegabyte's response is there, and replayed if it is
// to be.
func wantMegabyte(t *testing.T, w *httptest.ResponseRecorder, replayed bool) {
	t.Helper()
	if w.Code != 200 || w.Body.Len() != 1<<20 || (w.Header().Get("Idempotency-Replayed") == "true") != replayed {
		t.Errorf("response %d with %d bytes and %v, want it replayed: %v", w.Code, w.Body.Len(), w.Header(), replayed)
	}
}

func TestResponseMemory_TwoTenantsThatReadNothingKeepOutNoOthers(t *testing.T) {
	for _, replayed := range []bool{false, true} {
		t.Run(fmt.Sprint("replayed ", replayed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := byTenant
				cfg.MaxMemory, cfg.Usage = 16<<20, new(httponce.Usage)
				var runs atomic.Int32
				h := httponce.Wrap(newGuard(onlyonce.Config{}), aMegabyte(&runs), cfg)
				var takes []func()
				for i := range 16 {
					for _, greedy := range []string{"a", "b"} {
						key := strconv.Itoa(i)
						if replayed {
							serve(h, of(greedy, "/", key))
						}
						w, done := newTakesNothing(), make(chan struct{})
						takes = append(takes, func() { close(w.end); <-done })
						go func() {
							h.ServeHTTP(w, of(greedy, "/", key))
							close(done)
						}()
						time.Sleep(2 * time.Second) // it is stuck, or was rejected, or leaves unstored
					}
				}
				began := time.Now()
				for i := range 4 {
					for _, repeated := range []bool{false, true} {
						wantMegabyte(t, serve(h, of(strconv.Itoa(i), "/", "k")), repeated)
					}
				}
				if time.Now() != began {
					t.Error("they had to wait")
				}
				for _, take := range takes {
					take()
				}
				wantIdle(t, cfg.Usage)
			})
		})
	}
}

func TestResponseMemory_AResponseWaitsForMemoryAndItsClientMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 2<<20, 2<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), aMegabyte(&runs), cfg)
		wantMegabyte(t, serve(h, of("a", "/", "k")), false)
		for _, serving := range []func() *httptest.ResponseRecorder{
			func() *httptest.ResponseRecorder { return serve(h, of("a", "/", "k")) },
			func() *httptest.ResponseRecorder { return serve(h, of("a", "/", "first")) },
			func() *httptest.ResponseRecorder {
				gone, cancel := context.WithCancel(context.Background())
				time.AfterFunc(100*time.Millisecond, cancel)
				return serve(h, of("a", "/", "gone").WithContext(gone))
			},
		} {
			take := serveStuck(t, h, of("a", "/", "k"))
			var w *httptest.ResponseRecorder
			done := make(chan struct{})
			go func() {
				w = serving()
				close(done)
			}()
			time.Sleep(900 * time.Millisecond)
			take()
			if <-done; w.Code != 200 || w.Body.Len() != 1<<20 {
				t.Errorf("response %d %.100s", w.Code, w.Body)
			}
		}
		for _, key := range []string{"first", "gone"} {
			wantMegabyte(t, serve(h, of("a", "/", key)), true)
		}
		if n := runs.Load(); n != 3 {
			t.Errorf("%d runs", n)
		}
		wantIdle(t, cfg.Usage)
	})
}

func TestResponseMemory_LongResponsesKeepOutNoShortOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 4<<20, 4<<20, new(httponce.Usage)
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.Header.Get("Idempotency-Key"))
			w.Write(make([]byte, n))
		}), cfg)
		var takes []func()
		for i := range 4 { // the last one is not stored
			takes = append(takes, serveStuck(t, h, of(strconv.Itoa(i), "/", strconv.Itoa(1<<20))))
		}
		for _, length := range []int{65 << 10, 64 << 10} {
			for range 2 {
				w := serve(h, of("other", "/", strconv.Itoa(length)))
				if stored := w.Header().Get("Idempotency-Replay") != "omitted"; w.Code != 200 || stored && w.Body.Len() != length || !stored && length <= 64<<10 {
					t.Errorf("of %d bytes: answer %d with %d and %v", length, w.Code, w.Body.Len(), w.Header())
				}
			}
		}
		for _, take := range takes {
			take()
		}
		wantIdle(t, cfg.Usage)
	})
}

// A copying store returns a record's body in memory of its own, as a database does.
type copying struct {
	onlyonce.Store
	last   weak.Pointer[byte]   // the last body
	before func(id onlyonce.ID) // is called before a Claim; nil: nothing is
}

func (s *copying) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if s.before != nil {
		s.before(c.ID)
	}
	rec, err := s.Store.Claim(ctx, c)
	if len(rec.Result.Body) > 0 {
		rec.Result.Body = bytes.Clone(rec.Result.Body)
		s.last = weak.Make(&rec.Result.Body[0])
	}
	return rec, err
}

func TestResponseMemory_AReplayThatWaitsForMemoryHoldsNoResponse(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			records := memstore.New(memstore.Config{})
			store := &copying{Store: records}
			cfg := single
			cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 100<<10, 100<<10, new(httponce.Usage)
			cfg.MaxBody, cfg.MaxResponse = 64<<10, 64<<10
			long, runs := strings.Repeat("x", 60<<10), 0 // too short for its length to be remembered
			h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				_, _ = io.Copy(w, r.Body)
				_, _ = io.WriteString(w, long[:len(long)-1])
			}), cfg)
			wantResponse(t, post(h, "k", "y"), 200, "y"+long[1:])
			take := serveStuck(t, h, keyed("POST", "/orders", "k", "y"))
			waits, done := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(done)
				h.ServeHTTP(waits, keyed("POST", "/orders", "k", "y"))
			}()
			synctest.Wait()
			runtime.GC()
			if store.last.Value() != nil {
				t.Error("the response is in memory while its replay waits for memory")
			}
			if gone {
				store.before = func(id onlyonce.ID) {
					rec, err := store.Lookup(t.Context(), id)
					if err == nil {
						err = records.Resolve(t.Context(), rec, onlyonce.Settlement{})
					}
					if store.before = nil; err != nil {
						t.Error(err)
					}
				}
			}
			take()
			if <-done; gone {
				wantProblem(t, waits, 503, "overloaded")
			} else {
				wantResponse(t, waits, 200, "y"+long[1:])
			}
			if runs != 1 {
				t.Errorf("%d runs", runs)
			}
			wantResponse(t, post(h, "k", "y"), 200, "y"+long[1:]) // and if the record is gone, the key is free
			wantIdle(t, cfg.Usage)
		})
	}
}

func TestResponseMemory_RepeatsOfALongResponseDoNotReadItBeforeThereIsMemory(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			records := memstore.New(memstore.Config{})
			reads, of := 0, onlyonce.ID{}
			store := &copying{Store: records, before: func(id onlyonce.ID) { reads, of = reads+1, id }}
			cfg := single
			cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 2<<20, 2<<20, new(httponce.Usage)
			var runs atomic.Int32
			h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), aMegabyte(&runs), cfg)
			wantMegabyte(t, post(h, "k", ""), false)
			take := serveStuck(t, h, keyed("POST", "/orders", "k", ""))
			reads = 0
			var repeats [100]*httptest.ResponseRecorder
			var done sync.WaitGroup
			for i := range repeats {
				repeats[i] = httptest.NewRecorder()
				done.Go(func() { h.ServeHTTP(repeats[i], keyed("POST", "/orders", "k", "")) })
			}
			synctest.Wait()
			if reads != 0 {
				t.Errorf("%d repeats read the response, and there is memory for none", reads)
			}
			done.Wait()
			for _, w := range repeats {
				wantProblem(t, w, 503, "overloaded")
			}
			if gone {
				rec, err := store.Lookup(t.Context(), of)
				if err == nil {
					err = records.Resolve(t.Context(), rec, onlyonce.Settlement{})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			take()
			runs.Store(0)
			if wantMegabyte(t, post(h, "k", ""), !gone); gone != (runs.Load() == 1) {
				t.Errorf("%d runs; the record is gone: %v", runs.Load(), gone)
			}
			wantIdle(t, cfg.Usage)
		})
	}
}
