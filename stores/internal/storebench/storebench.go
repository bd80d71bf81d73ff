// Package storebench measures stores, for the benchmarks of those that need a server.
package storebench

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// ClaimAndSettle measures commands that are claimed and completed, by one caller and by many
// at once.
func ClaimAndSettle(b *testing.B, store onlyonce.Store) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			run := rand.Text()
			body := make([]byte, 100)
			var n atomic.Int64
			b.ReportAllocs()
			done := make(chan error, callers)
			for range callers {
				go func() {
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							done <- nil
							return
						}
						owner := make([]byte, 16)
						rand.Read(owner)
						c := onlyonce.Claim{ID: onlyonce.ID{Tenant: "acme", Operation: "POST /v1/orders", Key: fmt.Sprint(run, i)}, Owner: string(owner), Fingerprint: onlyonce.Fingerprint(body), Lease: 30 * time.Second}
						r, err := store.Claim(b.Context(), c)
						if err == nil {
							err = store.Settle(b.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Body: body}, Keep: time.Hour})
						}
						if err != nil {
							done <- err
							return
						}
					}
				}()
			}
			for range callers {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
		})
	}
}
