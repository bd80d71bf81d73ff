package httponce_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestMemory_TwoTenantsWhoseBodiesComeSlowlyKeepOutNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := byTenant
		cfg.MaxMemory, cfg.Usage = 16<<20, new(httponce.Usage)
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		end := make(chan struct{})
		for i := range 16 {
			for _, greedy := range []string{"a", "b"} {
				r, b := sending(greedy, strconv.Itoa(i), 1<<20)
				b.sends, b.end = 3<<18, end
				r.Body = &slow{b, 8 << 10, 1 << 20}
				go serve(h, r)
				synctest.Wait()
			}
		}
		began := time.Now()
		for i := range 4 {
			wantResponse(t, postAs(h, strconv.Itoa(i), "k", strings.Repeat("x", 1<<20)), 201, "")
		}
		if time.Now() != began {
			t.Error("they had to wait")
		}
		close(end)
		synctest.Wait()
		time.Sleep(time.Minute)
		wantIdle(t, cfg.Usage)
	})
}

func TestMemory_TheSharesOfTenantsGetSmallerWithTheirNumber(t *testing.T) {
	for tenants, each := range map[int]int{1: 60, 2: 40, 3: 30, 5: 20} {
		t.Run(strconv.Itoa(tenants), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := byTenant
				cfg.MaxBody, cfg.MaxMemory, cfg.Usage = 1<<10, 120<<10, new(httponce.Usage)
				var runs atomic.Int32
				h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
				end := make(chan struct{})
				for i := range 61 {
					for tenant := range tenants {
						r, b := sending(strconv.Itoa(tenant), strconv.Itoa(i), 1<<10)
						b.end = end
						go serve(h, r)
						time.Sleep(2 * time.Second) // it holds memory, or was rejected
					}
				}
				if _, bytes := cfg.Usage.Load(); bytes != int64(tenants*each)<<10 {
					t.Errorf("%d bytes are held, want %d KiB each", bytes, each)
				}
				w := postAs(h, "another", "k", strings.Repeat("x", 1<<10))
				wantResponse(t, w, 201, "")
				wantProblem(t, postAs(h, "0", "k", strings.Repeat("x", 1<<10)), 429, "too_many_requests")
				close(end)
				synctest.Wait()
				wantIdle(t, cfg.Usage)
			})
		})
	}
}

func TestMemory_RequestsThatWaitForMemoryLeavePlacesInTheQueueToOtherTenants(t *testing.T) {
	const places, most = 1024, 1024 * 3 / 4 // as of the memory
	for name, send := range map[string]func(h, inTx http.Handler, key string) *httptest.ResponseRecorder{
		"of one tenant": func(h, _ http.Handler, key string) *httptest.ResponseRecorder { return postAs(h, "greedy", key, "x") },
		"of nobody": func(_, inTx http.Handler, _ string) *httptest.ResponseRecorder {
			return serve(inTx, httptest.NewRequest("POST", "/orders", strings.NewReader("x")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := byTenant
				cfg.MaxBody, cfg.MaxMemory, cfg.MaxTenantMemory, cfg.Usage = 2, 4, 3, new(httponce.Usage)
				var runs atomic.Int32
				guard := onlyonce.NewTx(newShop(), onlyonce.Config{})
				h := httponce.Wrap(guard.Guard, counter(&runs), cfg)
				inTx := httponce.WrapTx(guard, func(http.ResponseWriter, *http.Request, order) error { return nil }, cfg)
				end := make(chan struct{})
				for i, tenant := range []string{"greedy", "greedy", "greedy", "another"} {
					r, b := announcing(tenant, "holds"+strconv.Itoa(i), 1)
					b.end = end
					go serve(h, r)
					synctest.Wait()
				}
				answers := make(chan *httptest.ResponseRecorder, 4*places)
				ask := func(send func() *httptest.ResponseRecorder) {
					go func() { answers <- send() }()
					synctest.Wait()
				}
				for i := range 2 * places {
					ask(func() *httptest.ResponseRecorder { return send(h, inTx, strconv.Itoa(i)) })
				}
				if n := 2*places - len(answers); n != most {
					t.Errorf("%d of one wait, want %d", n, most)
				}
				before := len(answers)
				for i := range places {
					ask(func() *httptest.ResponseRecorder { return postAs(h, strconv.Itoa(i), "k", "x") })
				}
				if n := len(answers) - before; n != most {
					t.Errorf("%d others are rejected while %d wait, want %d", n, places, most)
				}
				for len(answers) > 0 {
					if w := <-answers; w.Code != 503 && w.Code != 429 {
						t.Errorf("it is rejected with %d %s", w.Code, w.Body)
					}
				}
				close(end)
				synctest.Wait()
				if len(answers) != places {
					t.Errorf("%d are answered once there is memory, want %d", len(answers), places)
				}
				for len(answers) > 0 {
					if w := <-answers; w.Code >= 400 {
						t.Errorf("one that waited gets the response %d %s", w.Code, w.Body)
					}
				}
				wantIdle(t, cfg.Usage)
			})
		})
	}
}
