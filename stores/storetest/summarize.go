package storetest

import (
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var summarizeRules = []rule{
	{"a summary counts the records of each tenant, operation and state", func(t *storeTest) {
		want := map[onlyonce.Summary]int{}
		for i, stand := range recordStates {
			for n, id := range []onlyonce.ID{{Tenant: "acme", Operation: "POST /orders"}, {Tenant: "\xff\x00", Operation: `\x41`}, {}} {
				for j := range n + 1 {
					id.Key = fmt.Sprint(i, " ", j)
					r := stand.reach(t, claimOn(id))
					want[onlyonce.Summary{Tenant: id.Tenant, Operation: id.Operation, State: r.State, Lapsed: r.State == onlyonce.StateProcessing && r.LeaseLeft <= 0}]++
				}
			}
		}
		for s, n := range t.summarize() {
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
		if all := t.summarize(); len(all) != 0 {
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
		all, err := t.store.(onlyonce.Summarizer).Summarize(t.ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		if at := all[0].Oldest; at < later.CreatedAt.Sub(first.CreatedAt) || at > time.Since(began)+slack {
			t.Errorf("the oldest is %v old, and was created %v before another", at, later.CreatedAt.Sub(first.CreatedAt))
		}
	}},
}

// summarize returns the counts of a summary, without the ages.
func (t *storeTest) summarize() map[onlyonce.Summary]int {
	t.Helper()
	all, err := t.store.(onlyonce.Summarizer).Summarize(t.ctx)
	if err != nil {
		t.Fatalf("summarize: %v", err)
	}
	counts := make(map[onlyonce.Summary]int)
	for _, s := range all {
		n := s.Count
		s.Count, s.Oldest = 0, 0
		counts[s] += n
	}
	return counts
}
