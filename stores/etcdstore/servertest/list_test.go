package servertest

import (
	"encoding/binary"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// A scan keeps where 16,384 records stand.
func TestList_HasEveryRecordOfAStoreThatIsScannedTwice(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	head, rest := get(t, client, headOf(id)).Value, string(get(t, client, restOf(id)).Value)
	const more, atOnce = 17_000, 60
	for i := 0; i < more; {
		var ops []clientv3.Op
		for ; i < more && len(ops) < 2*atOnce; i++ {
			// Every other record is of an older command than the one before.
			binary.BigEndian.PutUint64(head[27:], uint64(1_700_000_000_000_000+int64(i%2)*more+int64(i)))
			id := hazard.Claim(fmt.Sprint(i)).ID
			ops = append(ops, clientv3.OpPut(headOf(id), string(head)), clientv3.OpPut(restOf(id), rest))
		}
		if _, err := client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	hazard.CheckListOrder(t, s, more+1)
}

func TestList_HasRecordsThatAreLarge(t *testing.T) {
	t.Parallel()
	_, _, s := migrated(t)
	const large = 12
	for i := range large {
		r, err := s.Claim(t.Context(), hazard.Claim(fmt.Sprint("large ", i)))
		if err == nil {
			err = s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: make([]byte, 1<<20)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	listed := 0
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if listed++; err != nil || len(r.Result.Body) != 1<<20 {
			t.Errorf("listed a body of %d bytes, error %v", len(r.Result.Body), err)
		}
	}
	if listed != large {
		t.Errorf("listed %d records, want %d", listed, large)
	}
}
