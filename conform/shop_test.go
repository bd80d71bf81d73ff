package conform_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/conform"
)

// A shop is a service that counts its effects and ignores keys.
type shop struct {
	*http.ServeMux
	takes time.Duration // how long an order runs, so that another can overtake it
	sold  atomic.Int64
	mu    sync.Mutex
	of    map[string]int // by note
}

func newShop() *shop {
	s := &shop{ServeMux: http.NewServeMux(), takes: 4 * time.Millisecond, of: map[string]int{}}
	s.HandleFunc("POST /orders", s.order)
	s.HandleFunc("POST /refunds", s.order)
	s.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") })
	s.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "how to use keys") })
	s.HandleFunc("GET /broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	s.HandleFunc("GET /sold", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"sold":[{"n":%d}]}`, s.sold.Load())
	})
	s.HandleFunc("GET /sold/{note}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprint(w, s.of[r.PathValue("note")])
	})
	return s
}

// slowly makes races of a busy machine rare.
func (s *shop) slowly() *shop {
	s.takes = 15 * time.Millisecond
	return s
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	var order struct{ Note string }
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &order)
	}
	if err != nil {
		http.Error(w, "this is no order", http.StatusBadRequest)
		return
	}
	n := s.sold.Add(1)
	s.mu.Lock()
	s.of[order.Note]++
	s.mu.Unlock()
	takeTime(r, s.takes)
	w.Header().Set("Location", fmt.Sprintf("%s/%d", r.URL.Path, n))
	w.Header().Set("Content-Type", "application/json")
	http.SetCookie(w, &http.Cookie{Name: "session", Value: fmt.Sprintf("s%d", n)})
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%d,"note":%q}`, n, order.Note)
}

// A gate counts, by key, the requests whose bodies have not arrived in full.
type gate struct {
	next http.Handler
	mu   sync.Mutex
	half map[string]int
}

type gateKey struct{}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	g.add(key, 1)
	whole := sync.OnceFunc(func() { g.add(key, -1) })
	defer whole()
	r = r.WithContext(context.WithValue(r.Context(), gateKey{}, g))
	r.Body = &incoming{r.Body, whole}
	g.next.ServeHTTP(w, r)
}

func (g *gate) add(key string, n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.half[key] += n
	return g.half[key]
}

// incoming is the body of a request that tells the gate when it has been read in full.
type incoming struct {
	io.ReadCloser
	whole func()
}

func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.whole()
	}
	return n, err
}

// takeTime waits for d, and until all other requests with the same key have arrived in
// full, so that they find this one running.
func takeTime(r *http.Request, d time.Duration) {
	_, _ = io.Copy(io.Discard, r.Body) // this request has then arrived in full itself
	time.Sleep(d)
	g, ok := r.Context().Value(gateKey{}).(*gate)
	key := r.Header.Get("Idempotency-Key")
	if !ok || key == "" || g.add(key, 0) == 0 {
		return
	}
	for end := time.Now().Add(time.Minute); g.add(key, 0) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(d)
}

// serve serves a shop, or a layer before one, and returns its complete Target.
func serve(t *testing.T, h http.Handler) conform.Target {
	t.Helper()
	server := httptest.NewServer(&gate{next: h, half: map[string]int{}})
	t.Cleanup(server.Close)
	return conform.Target{
		URL:      server.URL + "/orders",
		Header:   http.Header{"X-Tenant": {"tenant-of-a"}},
		Body:     []byte(`{"note": "a lamp", "amount": 2}`),
		Fresh:    "/note",
		Other:    http.Header{"X-Tenant": {"tenant-of-b"}},
		OtherURL: "/refunds",
		CountURL: "/sold",
		Count:    "/sold/0/n",
	}
}

// quick has a short timeout, for layers in which requests hang.
var quick = conform.Config{Timeout: 5 * time.Second}

// with returns the IDs of the rows that have a verdict.
func with(r conform.Report, v conform.Verdict) []string {
	ids := []string{}
	for _, row := range r.Rows {
		if row.Verdict == v {
			ids = append(ids, row.ID)
		}
	}
	return ids
}

// wantRows fails unless just these rows fail, and just these are not supported.
func wantRows(t *testing.T, r conform.Report, failed, unsupported []string) {
	t.Helper()
	if got := with(r, conform.Fail); !slices.Equal(got, failed) {
		t.Errorf("the rows %q fail, want %q", got, failed)
	}
	if got := with(r, conform.NotSupported); unsupported != nil && !slices.Equal(got, unsupported) {
		t.Errorf("the rows %q are not supported, want %q", got, unsupported)
	}
	if t.Failed() {
		for _, row := range r.Rows {
			t.Logf("%s: %s: %s", row.ID, row.Verdict, row.Detail)
		}
	}
}

func wantDetail(t *testing.T, r conform.Report, id, want string) {
	t.Helper()
	for _, row := range r.Rows {
		if row.ID == id && row.Detail != want {
			t.Errorf("%s: %s, want %s", id, row.Detail, want)
		}
	}
}

func run(t *testing.T, target conform.Target, cfg conform.Config) conform.Report {
	t.Helper()
	r, err := conform.Run(t.Context(), target, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if most := cfg.MaxRequests(); r.Requests > most {
		t.Errorf("%d requests were sent, which is more than %d", r.Requests, most)
	}
	return r
}
