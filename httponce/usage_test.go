package httponce_test

import (
	"bytes"
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
	"github.com/onlyonce-go/onlyonce/stores/memstore"
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

func TestARequestCountsBeforeItsBodyIsRead(t *testing.T) {
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
			t.Error("the body of a refused request was read")
		}
		if requests, bytes := cfg.Usage.Load(); requests != 2 || bytes != 16<<10 {
			t.Errorf("%d requests and %d bytes are counted", requests, bytes)
		}
		for _, b := range bodies {
			close(b.end)
		}
		all.Wait()
		wantAnswer(t, postAs(h, "greedy", "k", "x"), 201, "run 1 of x")
		wantIdle(t, cfg.Usage)
	})
}

func TestAnUnknownCallersBodyIsNotReadForItsKey(t *testing.T) {
	cfg := byTenant
	cfg.KeyInBody = func([]byte) (string, error) { return "", nil }
	var runs atomic.Int32
	r, b := announcing("", "k", 1<<20)
	delete(r.Header, "Idempotency-Key")
	wantProblem(t, serve(httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg), r), 401, "tenant_missing")
	if b.read.Load() {
		t.Error("the body was read")
	}
}

func TestAnswersForWhichThereIsNoMemoryAreNotStoredOrReplayed(t *testing.T) {
	cfg := single
	cfg.MaxBody, cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 1000, 95_000, 95_000, new(httponce.Usage)
	guard := newGuard(onlyonce.Config{})
	answer := strings.Repeat("0123456789", 8000)
	began, end := make(chan struct{}, 1), make(chan struct{})
	h := httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(answer); i += 8000 {
			io.WriteString(w, answer[i:i+8000])
		}
		if r.URL.Path == "/holds" {
			began <- struct{}{}
			<-end
		}
	}), cfg)
	wantAnswer(t, post(h, "stored", ""), 200, answer)
	wantAnswer(t, post(h, "stored", ""), 200, answer)
	go serve(h, keyed("POST", "/holds", "holds", ""))
	<-began
	wantAnswer(t, post(h, "k", ""), 200, answer)
	if w := post(h, "k", ""); w.Header().Get("Idempotency-Replay") != "omitted" || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("the repeat has %v", w.Header())
	}
	wantProblem(t, post(h, "stored", ""), 503, "overloaded")
	inTx := httponce.WrapTx(guard, newShop(), func(w http.ResponseWriter, _ *http.Request, _ order) error {
		_, err := io.WriteString(w, answer)
		return err
	}, cfg)
	wantProblem(t, post(inTx, "tx", ""), 503, "overloaded")
	close(end)
	for requests := 1; requests > 0; requests, _ = cfg.Usage.Load() {
		runtime.Gosched()
	}
	wantAnswer(t, post(h, "stored", ""), 200, answer)
	wantAnswer(t, post(inTx, "tx", ""), 200, answer)
	wantIdle(t, cfg.Usage)
}

// A takesNothing is a client that takes nothing of an answer's body until it is told to.
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

// serveStuck serves a request until its client is to take the answer's body. What
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

func TestClientsThatTakeNothingOfTheirAnswersKeepOutNoBodies(t *testing.T) {
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
		before          bool   // the answer is there already
	}{
		"replayed":           {path: "/orders", key: "k", before: true},
		"the first":          {path: "/orders", key: "k%d"},
		"with a long body":   {path: "/orders", key: "k%d", body: long},
		"streamed":           {path: "/streamed", key: "k%d", body: long},
		"a long replay's":    {path: "/orders", key: "k", body: long, before: true},
		"of unknown lengths": {path: "/streamed", key: "k%d"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := byTenant
			cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 4<<20, 4<<20, new(httponce.Usage)
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
	}
}

func TestWhatIsStoredIsBoundedForATenantAndInAll(t *testing.T) {
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
		wantAnswer(t, postAs(h, "d", "2", "x"), 201, "")
		if n := store("a"); n != 1 {
			t.Errorf("after 40 of 100 seconds a stores %d more answers", n)
		}
	})
}

func TestWhateverBecomesOfARequestItsCountersComeBack(t *testing.T) {
	cfg := byTenant
	cfg.Usage = new(httponce.Usage)
	guard := newGuard(onlyonce.Config{Lease: time.Minute})
	h := httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	inTx := httponce.WrapTx(guard, newShop(), func(w http.ResponseWriter, r *http.Request, _ order) error {
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
				fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body) // does not wait for the answer
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

func TestOneWhoGoesAwayWhileWaitingForMemoryLeavesNothing(t *testing.T) {
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

func TestHandlersOfOneGuardShareTheirMemory(t *testing.T) {
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
		wantAnswer(t, postAs(other, "b", "2", long), 201, "")
		close(body.end)
		synctest.Wait()
		wantAnswer(t, postAs(second, "b", "2", long), 201, "")
	})
}

func TestTheApplicationsOwnRefusalComesBeforeTheBody(t *testing.T) {
	cfg := byTenant
	cfg.Refuse = func(_ *http.Request, tenant string) *httponce.Problem {
		if tenant != "poor" {
			return nil
		}
		return &httponce.Problem{Code: "payment_required", Status: 402, Detail: "The bill is not paid."}
	}
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	r, b := announcing("poor", "k", 1<<20)
	if w := serve(h, r); w.Code != 402 || b.read.Load() || !strings.Contains(w.Body.String(), "The bill is not paid.") {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	wantAnswer(t, postAs(h, "rich", "k", "x"), 201, "run 1 of x")
}

func TestAKeyInTheBodyIsFoundThere(t *testing.T) {
	cfg := single
	cfg.KeyInBody = func(body []byte) (string, error) {
		if bytes.HasPrefix(body, []byte("!")) {
			return "", errors.New("the body is odd")
		}
		key, _, _ := strings.Cut(string(body), " ")
		return key, nil
	}
	var runs atomic.Int32
	var seen atomic.Value
	guard := newGuard(onlyonce.Config{})
	h := httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(fmt.Sprint(r.Header["Idempotency-Key"], r.ContentLength))
		counter(&runs).ServeHTTP(w, r)
	}), cfg)
	send := func(key, body string) *httptest.ResponseRecorder {
		r := keyed("POST", "/orders", key, body)
		if key == "" {
			delete(r.Header, "Idempotency-Key")
		}
		return serve(h, r)
	}
	for range 2 {
		wantAnswer(t, send("", "k1 x"), 201, "run 1 of k1 x")
	}
	if seen.Load() != `["k1"] 4` {
		t.Errorf("the handler sees %v", seen.Load())
	}
	wantAnswer(t, send("k1", "k1 x"), 201, "run 1 of k1 x")
	wantProblem(t, send("", "k1 y"), 422, "idempotency_key_reused")
	wantProblem(t, send("k2", "k1 x"), 400, "idempotency_key_invalid")
	wantProblem(t, send("", "k/2 x"), 400, "idempotency_key_invalid")
	if w := send("", "!"); !strings.Contains(w.Body.String(), "The body is odd.") {
		t.Errorf("%s", w.Body)
	}
	wantAnswer(t, send("", " x"), 201, "run 2 of  x")
	wantAnswer(t, send("", " x"), 201, "run 3 of  x")
	wantAnswer(t, send("k3", " x"), 201, "run 4 of  x")
	wantAnswer(t, send("k3", " x"), 201, "run 4 of  x")
	cfg.Required = true
	h = httponce.Wrap(guard, counter(&runs), cfg)
	wantProblem(t, send("", " x"), 400, "idempotency_key_missing")
	wantAnswer(t, send("", "k1 x"), 201, "run 1 of k1 x")
}

func TestARefusalReachesAClientThatIsStillSending(t *testing.T) {
	cfg := byTenant
	cfg.Refuse = func(_ *http.Request, tenant string) *httponce.Problem {
		if tenant == "busy" {
			return &httponce.Problem{Code: "busy", Status: 503}
		}
		return nil
	}
	var runs atomic.Int32
	s := newServer(t, httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), counter(&runs), cfg), false)
	body := strings.Repeat("b", 12<<20) // more than the two sockets hold
	for name, c := range map[string]struct{ head, status string }{
		"too large":       {"X-Tenant: a\r\nIdempotency-Key: k\r\n", "413"},
		"no tenant":       {"Idempotency-Key: k\r\n", "401"},
		"not a key":       {"X-Tenant: a\r\nIdempotency-Key: k/2\r\n", "400"},
		"busy":            {"X-Tenant: busy\r\nIdempotency-Key: k\r\n", "413"},
		"busy, in pieces": {"X-Tenant: busy\r\nIdempotency-Key: k\r\n", "503"},
		"in pieces":       {"X-Tenant: a\r\nIdempotency-Key: k\r\n", "413"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			framing, end := fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)), ""
			if strings.HasSuffix(name, "in pieces") {
				framing, end = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(body)), "\r\n0\r\n\r\n"
			}
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\n"+c.head+framing+body+end); err != nil {
				t.Errorf("sending: %v", err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+c.status+" ") {
				t.Errorf("%.80s, %v", got, err)
			}
		})
	}
}
