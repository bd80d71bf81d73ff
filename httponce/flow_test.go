package httponce

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestFlow_OverTCPAnUnreadResponseMakesRoomForOneThatIsRead(t *testing.T) {
	const length = 16 << 20 // more than the two sockets hold
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			cfg := Config{
				Tenant:      func(r *http.Request) string { return r.Header.Get("X-Tenant") },
				MaxResponse: length, MaxMemory: 24 << 20, MaxTenantMemory: 24 << 20, Usage: new(Usage),
			}
			var runs atomic.Int32
			guard := onlyonce.New(memstore.New(memstore.Config{MaxBytes: 1 << 40}), onlyonce.Config{})
			h := Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				w.Write(make([]byte, length))
			}), cfg).(*middleware)
			limits := h.cfg.limits()
			limits.Unread = 10 * time.Millisecond // while nobody waits for memory, no client is too slow
			h.quota = resources.NewQuota(&cfg.Usage.counters, limits)
			s := httptest.NewUnstartedServer(h)
			if s.EnableHTTP2 = http2; http2 {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			client := s.Client().Transport.(*http.Transport)
			client.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
			send := func(tenant, key string) *http.Response {
				r, err := http.NewRequest("POST", s.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-Tenant", tenant)
				r.Header.Set("Idempotency-Key", key)
				res, err := client.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			replayed := func(res *http.Response) bool {
				n, err := io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				return n == length && res.Header.Get("Idempotency-Replayed") == "true"
			}
			left, others := send("a", "k"), int32(0)
			defer left.Body.Close()
			end := time.Now().Add(time.Minute)
			for stored := false; !stored; others++ {
				if time.Now().After(end) {
					t.Fatal("nothing is stored beside a response that is left")
				}
				key := fmt.Sprint(others)
				replayed(send("b", key))
				stored = replayed(send("b", key))
			}
			if n, err := io.Copy(io.Discard, left.Body); err == nil || n >= length {
				t.Errorf("of the response that was left, %d bytes come: %v", n, err)
			}
			if res := send("a", "k"); !replayed(res) {
				t.Errorf("the repeat has %d %v", res.StatusCode, res.Header)
			}
			if n := runs.Load(); n != 1+others {
				t.Errorf("%d runs of %d requests", n, 1+others)
			}
		})
	}
}
