package servertest

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/storebench"
)

func BenchmarkClaimAndSettle(b *testing.B) {
	client := connect(b, start(b, 1)...)
	migrate(b, client, etcdstore.Config{})
	storebench.ClaimAndSettle(b, open(b, client, etcdstore.Config{}))
}

// BenchmarkBare measures the least that etcd has to do for a command: a transaction that makes a
// key of the size of a record, and one that replaces it.
func BenchmarkBare(b *testing.B) {
	client := connect(b, start(b, 1)...)
	claimed, settled, result := string(make([]byte, 160)), string(make([]byte, 160)), string(make([]byte, 110))
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			run := rand.Text()
			var n atomic.Int64
			done := make(chan error, callers)
			for range callers {
				go func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						key := fmt.Sprint(run, "/records/3f/01234567890123456789012345678901234567890", i)
						r, err := client.Txn(b.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
							Then(clientv3.OpPut(key, claimed)).Commit()
						if err == nil {
							_, err = client.Txn(b.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", r.Header.Revision)).
								Then(clientv3.OpPut(key, settled), clientv3.OpPut(key+"rest", result)).Commit()
						}
						if err != nil {
							done <- err
							return
						}
					}
					done <- nil
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
