package onlyonce_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/processortime"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// BenchmarkWaiters lets 10,000 callers wait for 10,000 commands that another process runs, and
// reports the processor time that they use in a second once they poll at the longest interval.
// For so many callers, b.N does not matter: run it with -benchtime 1x.
func BenchmarkWaiters(b *testing.B) {
	const callers = 10_000
	for b.Loop() {
		store := polled{memstore.New(memstore.Config{})}
		other := onlyonce.New(store, onlyonce.Config{Lease: time.Hour})
		g := onlyonce.New(store, onlyonce.Config{Wait: time.Hour, MaxWaiters: 2 * callers})
		ctx, cancel := context.WithCancel(b.Context())
		var waiting sync.WaitGroup
		for i := range callers {
			req := request(strconv.Itoa(i))
			if _, err := other.Begin(ctx, req); err != nil {
				b.Fatal(err)
			}
			waiting.Go(func() { _, _ = g.Begin(ctx, req) }) // until ctx ends
		}
		time.Sleep(3 * time.Second) // until the intervals are the longest
		const measured = 5 * time.Second
		before := processTime(b)
		time.Sleep(measured)
		used := processTime(b) - before
		cancel()
		waiting.Wait()
		b.ReportMetric(float64(used.Milliseconds())/measured.Seconds(), "cpu-ms/s")
	}
}

// A polled store notifies nobody, like one that other processes write to.
type polled struct{ onlyonce.Store }

// processTime returns the processor time that this process has used. It skips the benchmark if
// the system does not say.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	used, err := processortime.Of(os.Getpid())
	if err != nil {
		b.Skip(err)
	}
	return used
}
