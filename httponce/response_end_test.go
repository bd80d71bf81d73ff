package httponce_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A leaves is a client that leaves a response where it is until its deadline.
type leaves struct {
	*httptest.ResponseRecorder
	began, cut chan struct{}
	once       [2]sync.Once
}

func newLeaves() *leaves {
	return &leaves{ResponseRecorder: httptest.NewRecorder(), began: make(chan struct{}), cut: make(chan struct{})}
}

func (l *leaves) Write([]byte) (int, error) {
	l.once[0].Do(func() { close(l.began) })
	<-l.cut
	return 0, os.ErrDeadlineExceeded
}

func (l *leaves) WriteString(s string) (int, error) { return l.Write([]byte(s)) }

func (l *leaves) SetWriteDeadline(at time.Time) error {
	if at.Before(time.Now()) {
		l.once[1].Do(func() { close(l.cut) })
	}
	return nil
}

func TestResponse_WhileOthersWaitForMemoryTheResponsesUnreadForLongestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		before bool // the response is there already
	}{"first": {path: "/"}, "streamed": {path: "/flushed"}, "replayed": {path: "/", before: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := byTenant
				cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 4<<20, 4<<20, new(httponce.Usage)
				var runs atomic.Int32
				h := httponce.Wrap(newGuard(onlyonce.Config{}), aMegabyte(&runs), cfg)
				const stuck = 3
				var left [stuck]*leaves
				var done [stuck]chan struct{}
				for i := range stuck {
					if c.before {
						serve(h, of("a", c.path, strconv.Itoa(i)))
					}
					left[i], done[i] = newLeaves(), make(chan struct{})
					go func() {
						h.ServeHTTP(left[i], of("a", c.path, strconv.Itoa(i)))
						close(done[i])
					}()
					<-left[i].began
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Minute)
				if requests, _ := cfg.Usage.Load(); requests != stuck {
					t.Fatalf("nobody waits, and %d requests are counted", requests)
				}
				for _, repeated := range []bool{false, true} {
					wantMegabyte(t, serve(h, of("other", "/", "k")), repeated)
				}
				<-done[0]
				if requests, _ := cfg.Usage.Load(); requests != stuck-1 {
					t.Errorf("afterwards %d requests are counted", requests)
				}
				for i := 1; i < stuck; i++ {
					_ = left[i].SetWriteDeadline(time.Unix(1, 0))
					<-done[i]
				}
				for i := range stuck {
					wantMegabyte(t, serve(h, of("a", c.path, strconv.Itoa(i))), true)
				}
				if n := runs.Load(); n != stuck+1 {
					t.Errorf("%d runs", n)
				}
				wantIdle(t, cfg.Usage)
			})
		})
	}
}

// A takesSlowly is a client of 10 KiB a second whose window opens when 128 KiB have
// room, as on a loopback interface.
type takesSlowly struct {
	*leaves
	room int
}

func (c *takesSlowly) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if c.room == 0 {
			select {
			case <-c.cut:
				return n, os.ErrDeadlineExceeded
			case <-time.After(12800 * time.Millisecond):
				c.room = 128 << 10
			}
		}
		m := min(c.room, len(p)-n)
		n, c.room = n+m, c.room-m
	}
	c.Body.Write(p)
	return n, nil
}

func (c *takesSlowly) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

func TestResponse_AClientThatReadsSlowlyGetsTheWholeResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxBody, cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 1<<10, 2<<20, 2<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), aMegabyte(&runs), cfg)
		wantMegabyte(t, serve(h, of("a", "/", "k")), false)
		slow, done := &takesSlowly{leaves: newLeaves()}, make(chan struct{})
		go func() {
			h.ServeHTTP(slow, of("a", "/", "k"))
			close(done)
		}()
		synctest.Wait()
		for i := 0; cfg.Usage != nil; i++ {
			select {
			case <-done:
				wantMegabyte(t, slow.ResponseRecorder, true)
				wantMegabyte(t, serve(h, of("a", "/", "k")), true)
				if i < 10 {
					t.Errorf("only %d waited beside it", i)
				}
				return
			default:
			}
			w := serve(h, of("a", "/", "k"))
			if w.Code != 200 {
				if wantProblem(t, w, 503, "overloaded"); w.Header().Get("Retry-After") != "1" {
					t.Errorf("rejected with %v", w.Header())
				}
			}
		}
	})
}

func TestResponse_AResponseInATransactionDoesNotWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 2<<20, 2<<20, new(httponce.Usage)
		guard := onlyonce.NewTx(newShop(), onlyonce.Config{})
		h := httponce.Wrap(guard.Guard, aMegabyte(new(atomic.Int32)), cfg)
		inTx := httponce.WrapTx(guard, func(w http.ResponseWriter, _ *http.Request, _ order) error {
			_, err := w.Write(make([]byte, 1<<20))
			return err
		}, cfg)
		left := newLeaves()
		go h.ServeHTTP(left, of("a", "/", "k"))
		<-left.began
		began := time.Now()
		wantProblem(t, serve(inTx, of("b", "/", "tx")), 503, "overloaded")
		if time.Now() != began {
			t.Error("it waited in the transaction")
		}
		time.Sleep(time.Minute)
		wantProblem(t, serve(inTx, of("b", "/", "tx")), 503, "overloaded")
		<-left.cut // so that there is room for the next one
		synctest.Wait()
		for _, repeated := range []bool{false, true} {
			wantMegabyte(t, serve(inTx, of("b", "/", "tx")), repeated)
		}
		wantIdle(t, cfg.Usage)
	})
}

// A deaf client leaves its response where it is whatever its deadline, as when a connection
// of HTTP/2 takes nothing of any of its streams.
type deaf struct{ *takesNothing }

func (deaf) SetWriteDeadline(time.Time) error { return nil }

func TestResponse_AResponseThatDoesNotEndIsNotReliedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 3<<20, 3<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), aMegabyte(&runs), cfg)
		first, second := deaf{newTakesNothing()}, newLeaves()
		go h.ServeHTTP(first, of("a", "/", "1"))
		<-first.began
		time.Sleep(time.Millisecond)
		go h.ServeHTTP(second, of("a", "/", "2"))
		<-second.began
		time.Sleep(time.Minute)
		for try := 0; ; try++ {
			key := strconv.Itoa(try)
			serve(h, of("other", "/", key))
			if w := serve(h, of("other", "/", key)); w.Body.Len() == 1<<20 {
				break
			} else if try == 3 {
				t.Fatalf("others get %d with %d bytes", w.Code, w.Body.Len())
			}
		}
		<-second.cut
		close(first.end)
		synctest.Wait()
		wantIdle(t, cfg.Usage)
	})
}
