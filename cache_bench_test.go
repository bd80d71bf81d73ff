package onlyonce_test

import (
	"context"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// BenchmarkReplay is a replay of 1 KiB with a header by Guard.Begin. "memstore" is without a
// cache, on the fastest store that there is.
func BenchmarkReplay(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  onlyonce.Config
	}{
		{"memstore", onlyonce.Config{}},
		{"cache", onlyonce.Config{CacheBytes: 1 << 20, CacheMaxAge: time.Hour}},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := onlyonce.New(memstore.New(memstore.Config{}), c.cfg)
			req := settledRequest(b, g)
			b.ReportAllocs()
			for b.Loop() {
				if a, err := g.Begin(b.Context(), req); err != nil || !a.Replayed() {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+", parallel", func(b *testing.B) {
			g := onlyonce.New(memstore.New(memstore.Config{}), c.cfg)
			req := settledRequest(b, g)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a, err := g.Begin(context.Background(), req); err != nil || !a.Replayed() {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkFirst is a command that is settled once, with a result of 1 KiB.
func BenchmarkFirst(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  onlyonce.Config
	}{
		{"no cache", onlyonce.Config{}},
		{"cache", onlyonce.Config{CacheBytes: 1 << 20}},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := onlyonce.New(discarding{memstore.New(memstore.Config{})}, c.cfg)
			req := request("k")
			b.ReportAllocs()
			for b.Loop() {
				a, err := g.Begin(b.Context(), req)
				if err != nil {
					b.Fatal(err)
				}
				if err := a.Settle(b.Context(), cachedResult); err != nil {
					b.Fatal(err)
				}
				g.Forget(req.ID)
			}
		})
	}
}

// A discarding store forgets a command when it is settled.
type discarding struct{ onlyonce.Store }

func (s discarding) Settle(ctx context.Context, h onlyonce.Hold, _ onlyonce.Settlement) error {
	return s.Store.Settle(ctx, h, onlyonce.Settlement{})
}

var cachedResult = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{
	Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/orders/1"}}, Body: make([]byte, 1<<10), Ref: "order-1",
}}

// settledRequest returns the request for a command that g has settled.
func settledRequest(tb testing.TB, g *onlyonce.Guard) onlyonce.Request {
	tb.Helper()
	req := request("k")
	a, err := g.Begin(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	if err := a.Settle(tb.Context(), cachedResult); err != nil {
		tb.Fatal(err)
	}
	return req
}
