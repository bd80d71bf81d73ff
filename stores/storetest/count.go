package storetest

import (
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var countRules = []rule{
	{"a summary counts the records of each tenant, operation and state", func(t *storeTest) {
		want := map[onlyonce.RecordCount]int{}
		for i, stand := range recordStates {
			for n, id := range []onlyonce.ID{{Tenant: "acme", Operation: "POST /orders"}, {Tenant: "\xff\x00", Operation: `\x41`}, {}} {
				for j := range n + 1 {
					id.Key = fmt.Sprint(i, " ", j)
					r := stand.reach(t, claimOn(id))
					want[onlyonce.RecordCount{Tenant: id.Tenant, Operation: id.Operation, State: r.State, Lapsed: r.State == onlyonce.StateProcessing && r.LeaseLeft <= 0}]++
				}
			}
		}
		for s, n := range t.countRecords() {
			if want[s] != n {
				t.Errorf("%d records are %+v, want %d", n, s, want[s])
			}
			delete(want, s)
		}
		if len(want) > 0 {
			t.Errorf("nothing was counted for %v", want)
		}
	}},
	{"a summary counts nothing that is gone", func(t *storeTest) {
		t.settle(holdOf(t.mustClaim(claimOf("released"))), onlyonce.Settlement{})
		t.settle(holdOf(t.mustClaim(claimOf("expired"))), keeping(completed("made"), short))
		t.awaitExpiry(idOf("expired"))
		if all := t.countRecords(); len(all) != 0 {
			t.Errorf("%v were counted", all)
		}
	}},
	{"a summary has the age of the oldest", func(t *storeTest) {
		began := time.Now()
		first := t.mustClaim(claimOf("first"))
		later := first
		for n := 0; !precedes(first.CreatedAt, later.CreatedAt); n++ {
			later = t.mustClaim(claimOf(fmt.Sprint(n)))
		}
		all, err := t.store.(onlyonce.Counter).CountRecords(t.ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		if at := all[0].Oldest; at < later.CreatedAt.Sub(first.CreatedAt) || at > time.Since(began)+slack {
			t.Errorf("the oldest is %v old, and was created %v before another", at, later.CreatedAt.Sub(first.CreatedAt))
		}
	}},
}

// countRecords returns the counts, without the ages.
func (t *storeTest) countRecords() map[onlyonce.RecordCount]int {
	t.Helper()
	all, err := t.store.(onlyonce.Counter).CountRecords(t.ctx)
	if err != nil {
		t.Fatalf("count records: %v", err)
	}
	counts := make(map[onlyonce.RecordCount]int)
	for _, s := range all {
		n := s.Count
		s.Count, s.Oldest = 0, 0
		counts[s] += n
	}
	return counts
}
