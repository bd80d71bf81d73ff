package httponce_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestTwoTenantsWhoseBodiesComeSlowlyKeepOutNoOthers(t *testing.T) {
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
			wantAnswer(t, postAs(h, strconv.Itoa(i), "k", strings.Repeat("x", 1<<20)), 201, "")
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

func TestTheSharesOfTenantsGetSmallerWithTheirNumber(t *testing.T) {
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
						time.Sleep(2 * time.Second) // it holds memory, or was refused
					}
				}
				if _, bytes := cfg.Usage.Load(); bytes != int64(tenants*each)<<10 {
					t.Errorf("%d bytes are held, want %d KiB each", bytes, each)
				}
				w := postAs(h, "another", "k", strings.Repeat("x", 1<<10))
				wantAnswer(t, w, 201, "")
				wantProblem(t, postAs(h, "0", "k", strings.Repeat("x", 1<<10)), 429, "too_many_requests")
				close(end)
				synctest.Wait()
				wantIdle(t, cfg.Usage)
			})
		})
	}
}
