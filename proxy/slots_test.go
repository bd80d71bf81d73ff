package proxy_test

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestSlots_AnUpstreamGetsOnlySoManyRequestsAtATime(t *testing.T) {
	const most = 8
	var now, peak, held atomic.Int32
	end := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > peak.Load() {
			peak.Store(n)
		}
		defer now.Add(-1)
		if r.URL.Path == "/v1/orders" && r.Header.Get("X-Hold") != "" {
			held.Add(1)
			<-end
		}
		w.WriteHeader(201)
	})
	up.MaxConns = most
	usage := new(httponce.Usage)
	addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.Usage = usage })
	hold := func(key string) (status int, after string) {
		h := http.Header{"X-Hold": {"1"}}
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
		res, _ := send(t, "POST", "http://"+addr+"/v1/orders", h, "x")
		return res.StatusCode, res.Header.Get("Retry-After")
	}
	var all sync.WaitGroup
	var busy atomic.Int32
	count := func(key string) {
		all.Go(func() {
			switch status, after := hold(key); {
			case status == 503 && after == "1":
				busy.Add(1)
			case status != 201:
				t.Errorf("status %d", status)
			}
		})
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never: ", what)
			}
		}
	}
	for range 20 {
		count("")
	}
	until("what has no key fills its three quarters", func() bool { return held.Load() == most-most/4 && busy.Load() == 20-(most-most/4) })
	for i := range 20 {
		count("k" + strconv.Itoa(i))
	}
	until("keyed requests fill the rest", func() bool { return held.Load() == most && busy.Load() == 40-most })
	close(end)
	all.Wait()
	if peak.Load() > most {
		t.Errorf("%d requests were with the upstream at a time", peak.Load())
	}
	for i := range 20 { // rejected requests had not been sent, and their keys are free
		if res, _ := post(t, addr, "k"+strconv.Itoa(i), "x"); res.StatusCode != 201 && res.StatusCode != 422 {
			t.Errorf("the repeat of k%d gets %d", i, res.StatusCode)
		}
	}
	if requests, bytes := usage.Load(); requests != 0 || bytes != 0 {
		t.Errorf("in the end %d requests and %d bytes are counted", requests, bytes)
	}
}

func TestSlots_ALongBodyOfAKeyedRequestArrivesWhole(t *testing.T) {
	want := make([]byte, 1<<20-3)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	var same atomic.Bool
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		same.Store(err == nil && string(got) == string(want) && r.ContentLength == int64(len(want)))
		w.WriteHeader(201)
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	res, _ := post(t, addr, "k", string(want))
	if res.StatusCode != 201 || !same.Load() {
		t.Errorf("status %d, the same bytes: %v", res.StatusCode, same.Load())
	}
	if res, _ := post(t, addr, "k", string(want)); res.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the repeat gets %v", res.Header)
	}
}

func TestSlots_ATenantOfASlowUpstreamKeepsOutNoOther(t *testing.T) {
	const most, requests = 8, 20
	var held atomic.Int32
	let := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") == "acme" {
			held.Add(1)
			<-let
		}
		w.WriteHeader(201)
	})
	up.MaxConns = most
	addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency.Tenant = func(r *http.Request) string { return r.Header.Get("X-Tenant") }
	})
	order := func(tenant, key string) int {
		res, _ := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"X-Tenant": {tenant}, "Idempotency-Key": {key}}, "x")
		return res.StatusCode
	}
	if got := order("globex", "before"); got != 201 {
		t.Fatalf("status %d", got)
	}
	statuses := make(chan int, requests)
	for i := range requests {
		go func() { statuses <- order("acme", strconv.Itoa(i)) }()
	}
	for range requests - most*3/4 {
		if got := <-statuses; got != 503 {
			t.Errorf("status %d, and the upstream has responded to nothing", got)
		}
	}
	for end := time.Now().Add(patience); held.Load() < most*3/4 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if held.Load() != most*3/4 {
		t.Errorf("%d requests of a tenant are with an upstream that takes %d", held.Load(), most)
	}
	if got := order("globex", "after"); got != 201 {
		t.Errorf("another tenant gets %d", got)
	}
	close(let)
	for range most * 3 / 4 {
		if got := <-statuses; got != 201 {
			t.Errorf("status %d", got)
		}
	}
}
