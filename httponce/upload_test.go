package httponce_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

func TestUpload_BodiesThatAreAnnouncedAndNeverSentKeepOutNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 8<<20, 4<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		var all sync.WaitGroup
		var bodies []*stalled
		for i := range 50 {
			r, b := announcing(strconv.Itoa(i%5), strconv.Itoa(i), 1<<20)
			bodies = append(bodies, b)
			all.Go(func() { wantProblem(t, serve(h, r), 400, "body_unreadable") })
		}
		synctest.Wait()
		if _, bytes := cfg.Usage.Load(); bytes != 50*8<<10 {
			t.Errorf("%d bytes are counted", bytes)
		}
		for i := range 5 {
			wantResponse(t, postAs(h, "other", strconv.Itoa(i), strings.Repeat("x", 1<<(4*i+4))), 201, "")
		}
		for _, b := range bodies {
			close(b.end)
		}
		all.Wait()
		wantIdle(t, cfg.Usage)
	})
}

func TestUpload_LongBodiesKeepOutNoShortOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 8<<20, 2<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		var all sync.WaitGroup
		var bodies []*stalled
		for i := range 6 {
			r, b := sending(strconv.Itoa(i), "k", 1<<20)
			bodies = append(bodies, b)
			all.Go(func() { wantProblem(t, serve(h, r), 400, "body_unreadable") })
			synctest.Wait()
		}
		if _, bytes := cfg.Usage.Load(); bytes != 6<<20 {
			t.Errorf("%d bytes are counted", bytes)
		}
		wantResponse(t, postAs(h, "a", "k", strings.Repeat("x", 64<<10)), 201, "")
		r, b := announcing("0", "another", 1<<20)
		w := serve(h, r)
		if wantProblem(t, w, 503, "overloaded"); w.Header().Get("Retry-After") != "1" || b.read.Load() {
			t.Errorf("rejected with %v, read: %v", w.Header(), b.read.Load())
		}
		for _, b := range bodies {
			close(b.end)
		}
		all.Wait()
		wantIdle(t, cfg.Usage)
	})
}

// A cutOff is a ResponseWriter that ends a request's body at a deadline.
type cutOff struct {
	*httptest.ResponseRecorder
	body *stalled
}

func (c cutOff) SetReadDeadline(at time.Time) error {
	if at.Before(time.Now()) {
		close(c.body.end)
	}
	return nil
}

func TestUpload_WhileOthersWaitForMemoryTheBodiesThatAreSilentForLongestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 4<<20, 2<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		var ended []chan *httptest.ResponseRecorder
		var bodies []*stalled
		for i := range 3 {
			r, b := sending(strconv.Itoa(i), "k", 1<<20)
			w, end := cutOff{httptest.NewRecorder(), b}, make(chan *httptest.ResponseRecorder, 1)
			bodies, ended = append(bodies, b), append(ended, end)
			go func() {
				h.ServeHTTP(w, r)
				end <- w.ResponseRecorder
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		if requests, bytes := cfg.Usage.Load(); requests != 3 || bytes != 3<<20 {
			t.Fatalf("nobody waits, and %d requests with %d bytes are counted", requests, bytes)
		}
		wantResponse(t, postAs(h, "other", "k", strings.Repeat("x", 1<<20)), 201, "")
		w := <-ended[0]
		if wantProblem(t, w, 503, "overloaded"); w.Header().Get("Retry-After") != "1" {
			t.Errorf("ended with %v", w.Header())
		}
		if requests, bytes := cfg.Usage.Load(); requests != 2 || bytes != 2<<20 {
			t.Errorf("afterwards %d requests with %d bytes are counted", requests, bytes)
		}
		for i := 1; i < 3; i++ {
			close(bodies[i].end)
			wantProblem(t, <-ended[i], 400, "body_unreadable")
		}
		wantIdle(t, cfg.Usage)
	})
}

func TestUpload_OverTCPASilentBodyMakesRoomForOneThatComes(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			cfg := byTenant
			cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 2<<20, 2<<20, new(httponce.Usage)
			var runs atomic.Int32
			h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
			s := newServer(t, h, http2)
			come, rest := io.Pipe()
			defer rest.Close()
			r, err := http.NewRequest("POST", s.URL+"/orders", come)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = 1 << 20
			r.Header.Set("Idempotency-Key", "k")
			r.Header.Set("X-Tenant", "silent")
			go rest.Write(make([]byte, 1<<17)) // for which it has all of its memory
			ended := make(chan int, 1)
			go func() {
				res, err := s.Client().Do(r)
				if err != nil {
					t.Error(err)
					ended <- 0
					return
				}
				res.Body.Close()
				ended <- res.StatusCode
			}()
			for bytes := int64(0); bytes < 1<<20; _, bytes = cfg.Usage.Load() {
				time.Sleep(time.Millisecond)
			}
			for code := 0; code != 201; {
				w := postAs(h, "other", "k", strings.Repeat("x", 1<<20))
				if code = w.Code; code != 201 {
					wantProblem(t, w, 503, "overloaded")
				}
			}
			if code := <-ended; code != 503 {
				t.Errorf("the silent one gets %d", code)
			}
		})
	}
}

// A slow body sends so many bytes every 70 ms: not when others look for silent ones.
type slow struct {
	*stalled
	each int
	left int
}

func (b *slow) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.each, b.left)
	if b.sends == 0 {
		select {
		case <-b.end:
			return 0, io.ErrUnexpectedEOF
		case <-time.After(70 * time.Millisecond):
		}
	} else if n = int(min(int64(len(p)), b.sends)); n > 0 {
		b.sends -= int64(n)
	}
	b.left -= n
	return n, nil
}

func TestUpload_ABodyThatDripsIsSilentAndOneThatComesIsNot(t *testing.T) {
	for _, c := range []struct {
		each, ended, other int
	}{{1, 503, 201}, {4 << 10, 503, 201}, {8 << 10, 201, 503}} { // a megabyte has 10 seconds
		synctest.Test(t, func(t *testing.T) {
			cfg := byTenant
			cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 2<<20, 2<<20, new(httponce.Usage)
			var runs atomic.Int32
			h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
			r, b := announcing("slow", "k", 1<<20)
			b.sends = 3 << 18
			r.Body = &slow{b, c.each, 1 << 20}
			w, end := cutOff{httptest.NewRecorder(), b}, make(chan struct{})
			go func() {
				h.ServeHTTP(w, r)
				close(end)
			}()
			time.Sleep(time.Second)
			if got := postAs(h, "other", "k", strings.Repeat("x", 1<<20)); got.Code != c.other {
				t.Errorf("beside %d bytes every 70 ms: %d %s", c.each, got.Code, got.Body)
			}
			if <-end; w.Code != c.ended {
				t.Errorf("%d bytes every 70 ms: %d %s", c.each, w.Code, w.Body)
			}
			wantIdle(t, cfg.Usage)
		})
	}
}

// An inHalves body sends the second half when it is told to.
type inHalves struct {
	strings.Reader
	second chan struct{}
}

func (b *inHalves) Read(p []byte) (int, error) {
	if left, half := b.Len(), int(b.Size()/2)+1; left > half {
		p = p[:min(len(p), left-half)]
	} else {
		<-b.second
	}
	return b.Reader.Read(p)
}

func (*inHalves) Close() error { return nil }

func TestUpload_BodiesThatEachHoldHalfOfWhatTheyNeedDoNotWaitForEachOther(t *testing.T) {
	for _, tenants := range []int{1, 12} {
		synctest.Test(t, func(t *testing.T) {
			cfg := byTenant
			cfg.MaxBody, cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 2<<20, 16<<20, 16<<20, new(httponce.Usage)
			var runs, ran atomic.Int32
			h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
			second := make(chan struct{})
			var all sync.WaitGroup
			for i := range 12 {
				r, _ := announcing(strconv.Itoa(i%tenants), strconv.Itoa(i), 2<<20)
				r.Body = &inHalves{*strings.NewReader(strings.Repeat("x", 2<<20)), second}
				all.Go(func() {
					w := serve(h, r)
					if w.Code == 201 {
						ran.Add(1)
					} else if w.Code != 503 && w.Code != 429 || w.Header().Get("Retry-After") != "1" {
						t.Errorf("response %d %v", w.Code, w.Header())
					}
				})
			}
			synctest.Wait()
			if _, bytes := cfg.Usage.Load(); bytes != 12<<20 {
				t.Errorf("%d bytes are counted", bytes)
			}
			began := time.Now()
			close(second)
			all.Wait()
			if time.Now() != began {
				t.Error("an upload waited for another one that waits")
			}
			if ran.Load() < 6 {
				t.Errorf("%d of 12 ran", ran.Load())
			}
			wantIdle(t, cfg.Usage)
		})
	}
}

func TestUpload_ABodyMayBeLongerThanItsRequestSays(t *testing.T) {
	cfg := byTenant
	cfg.Usage = new(httponce.Usage)
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	body := strings.Repeat("x", 20_000)
	for i, announced := range []int64{0, 1, 100, 9000} {
		r := keyed("POST", "/orders", fmt.Sprint("k", announced), body)
		r.Header.Set("X-Tenant", "a")
		r.ContentLength = announced // as a handler leaves it that decompresses
		wantResponse(t, serve(h, r), 201, fmt.Sprintf("run %d of %s", i+1, body))
	}
	wantIdle(t, cfg.Usage)
}

func TestUpload_ATenantsBodiesTakeOnlyItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 8<<20, 2<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		first, body := sending("greedy", "1", 1<<20)
		go serve(h, first)
		synctest.Wait()
		second, _ := sending("greedy", "2", 1<<20)
		wantProblem(t, serve(h, second), 429, "too_many_requests")
		long := strings.Repeat("x", 1<<20)
		waits := make(chan *httptest.ResponseRecorder)
		go func() { waits <- postAs(h, "greedy", "3", long) }()
		synctest.Wait()
		wantResponse(t, postAs(h, "other", "k", long), 201, "")
		close(body.end)
		wantResponse(t, <-waits, 201, "")
		wantIdle(t, cfg.Usage)
	})
}

// A trickle is a body of unknown length that comes in pieces, and at its end waits
// to be told to go on.
type trickle struct {
	left int
	end  chan struct{}
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.left == 0 {
		<-b.end
		return 0, io.EOF
	}
	n := min(len(p), 1000, b.left)
	b.left -= n
	return n, nil
}

func TestUpload_ABodyOfUnknownLengthCountsAsItGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 4<<20, 2<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		end := make(chan struct{})
		send := func(tenant string, n int) (w chan *httptest.ResponseRecorder) {
			r, _ := announcing(tenant, "k", -1)
			r.Body = io.NopCloser(&trickle{n, end})
			w = make(chan *httptest.ResponseRecorder, 1)
			go func() { w <- serve(h, r) }()
			synctest.Wait()
			return w
		}
		counted := func(least, most int64) {
			t.Helper()
			if _, bytes := cfg.Usage.Load(); bytes < least || bytes > most {
				t.Errorf("%d bytes are counted, want %d to %d", bytes, least, most)
			}
		}
		short := send("a", 100)
		counted(100, 8<<10)
		long := send("b", 1<<20)
		counted(1<<20, 1<<20+8<<10)
		longest := send("c", 1<<20+1)
		wantProblem(t, <-longest, 413, "body_too_large")
		counted(1<<20, 1<<20+8<<10)
		more := []chan *httptest.ResponseRecorder{send("d", 1<<20), send("e", 1<<20)}
		time.Sleep(time.Second)
		wantProblem(t, <-more[1], 503, "overloaded")
		close(end)
		for _, w := range []chan *httptest.ResponseRecorder{short, long, more[0]} {
			wantResponse(t, <-w, 201, "")
		}
		wantIdle(t, cfg.Usage)
	})
}

func TestUpload_ASmallBodyMayComeSlowlyWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxBody, cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 64<<10, 100<<10, 100<<10, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		r, b := announcing("slow", "k", 64<<10)
		b.sends = 9 << 10 // for which it has all of its memory
		r.Body = &slow{b, 1200, 64 << 10}
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			h.ServeHTTP(cutOff{w, b}, r)
			close(done)
		}()
		synctest.Wait()
		for waited := 0; ; waited++ {
			select {
			case <-done:
				if w.Code != 201 || waited < 2 {
					t.Errorf("%d waited beside it, and it gets %d %s", waited, w.Code, w.Body)
				}
				return
			default:
				postAs(h, "other", strconv.Itoa(waited), strings.Repeat("x", 64<<10))
			}
		}
	})
}
