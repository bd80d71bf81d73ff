package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var listRules = []rule{
	{"a list of nothing is empty", func(t *storeTest) {
		t.lists(onlyonce.Filter{})
	}},
	{"a list shows every record as Lookup does", func(t *storeTest) {
		for i, stand := range recordStates {
			stand.enter(t, claimOf(fmt.Sprint(i)))
		}
		for _, r := range t.list(onlyonce.Filter{}) {
			t.unchanged(snapshotOf(r))
		}
		t.listed([]onlyonce.ID{idOf("0"), idOf("1"), idOf("2"), idOf("3"), idOf("4"), idOf("5"), idOf("6")})
	}},
	{"a list has the newest first", func(t *storeTest) {
		t.make(30)
		for i := range 10 {
			t.settle(holdOf(t.lookup(idOf(fmt.Sprint(3*i)))), completed("made"))
		}
		all := t.list(onlyonce.Filter{})
		for i := range all[1:] {
			if all[i+1].CreatedAt.After(all[i].CreatedAt) {
				t.Errorf("%v comes before %v", all[i].CreatedAt, all[i+1].CreatedAt)
			}
		}
	}},
	{"a list does not show what has expired or was released", func(t *storeTest) {
		t.mustClaim(claimOf("stays"))
		t.settle(holdOf(t.mustClaim(claimOf("released"))), onlyonce.Settlement{})
		t.settle(holdOf(t.mustClaim(claimOf("expired"))), keeping(completed("made"), short))
		t.awaitExpiry(idOf("expired"))
		t.lists(onlyonce.Filter{}, idOf("stays"))
		t.lists(onlyonce.Filter{Key: "expired"})
		t.lists(onlyonce.Filter{State: onlyonce.StateCompleted})
	}},
	{"a filter by state shows only that state", func(t *storeTest) {
		ids := map[onlyonce.State][]onlyonce.ID{}
		for i, stand := range recordStates {
			r := stand.enter(t, claimOf(fmt.Sprint(i)))
			ids[r.State] = append(ids[r.State], r.ID)
		}
		for state, want := range ids {
			t.lists(onlyonce.Filter{State: state}, want...)
		}
		t.lists(onlyonce.Filter{State: "no such state"})
	}},
	{"a filter of the unresolved shows those of unknown outcome", func(t *storeTest) {
		var want []onlyonce.ID
		for i, stand := range recordStates {
			for _, tenant := range []string{"acme", "bolt"} {
				c := claimOn(onlyonce.ID{Tenant: tenant, Operation: "POST /orders", Key: fmt.Sprint(i)})
				if tenant == "bolt" {
					c.Keep = long
				}
				if r := stand.enter(t, c); r.Unresolved() {
					want = append(want, r.ID)
				}
			}
		}
		if len(want) != 4 {
			t.Fatalf("%d records are unresolved, want 4", len(want))
		}
		t.lists(onlyonce.Filter{Unresolved: true}, want...)
		t.lists(onlyonce.Filter{Unresolved: true, Tenant: "acme"}, want[0], want[2])
		t.lists(onlyonce.Filter{Unresolved: true, State: onlyonce.StateUnknown}, want[2], want[3])
		t.lists(onlyonce.Filter{Unresolved: true, State: onlyonce.StateCompleted})
		t.sameOrder(t.list(onlyonce.Filter{Unresolved: true}), t.pages(onlyonce.Filter{Unresolved: true, Limit: 1}, func() {}))
		t.lists(onlyonce.Filter{Unresolved: true, IDPrefix: want[0].HexHash()[:16]}, want[0])
	}},
	{"a filter by the beginning of an id shows only what begins with it", func(t *storeTest) {
		t.make(100)
		for i := range 10 {
			id := idOf(fmt.Sprint(i))
			whole := id.HexHash()
			for _, n := range []int{64, 17, 16, 3, 1} {
				var want []onlyonce.ID
				for _, other := range idsOf(100) {
					if strings.HasPrefix(other.HexHash(), whole[:n]) {
						want = append(want, other)
					}
				}
				t.lists(onlyonce.Filter{IDPrefix: whole[:n]}, want...)
			}
			t.lists(onlyonce.Filter{IDPrefix: whole[:16], Tenant: "acme"}, id)
			t.lists(onlyonce.Filter{IDPrefix: whole[:16], Tenant: "bolt"})
			t.lists(onlyonce.Filter{IDPrefix: whole[:16], State: onlyonce.StateCompleted})
			t.lists(onlyonce.Filter{IDPrefix: whole + "0"})
		}
		t.lists(onlyonce.Filter{IDPrefix: "no hexadecimal"})
	}},
	{"a filter shows only what it says, exactly", func(t *storeTest) {
		a := onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "k"}
		b := onlyonce.ID{Tenant: "acme", Operation: "POST /refunds", Key: "k"}
		c := onlyonce.ID{Tenant: "bolt", Operation: "POST /orders", Key: "k"}
		d := onlyonce.ID{Tenant: "bolt", Operation: "POST /orders", Key: "K"}
		e := onlyonce.ID{Key: "a%_'"}
		for i, id := range []onlyonce.ID{a, b, c, d, e} {
			s := completed("made")
			s.Result.Ref = fmt.Sprint("order-", i)
			t.complete(claimOn(id), s)
		}
		t.lists(onlyonce.Filter{Tenant: "acme"}, a, b)
		t.lists(onlyonce.Filter{Operation: "POST /orders"}, a, c, d)
		t.lists(onlyonce.Filter{Key: "k"}, a, b, c)
		t.lists(onlyonce.Filter{Ref: "order-1"}, b)
		t.lists(onlyonce.Filter{Tenant: "bolt", Operation: "POST /orders", Key: "k"}, c)
		t.lists(onlyonce.Filter{Tenant: "bolt", Ref: "order-0"})
		t.lists(onlyonce.Filter{Tenant: "acme", State: onlyonce.StateCompleted}, a, b)
		t.lists(onlyonce.Filter{Tenant: "acme", State: onlyonce.StateFailed})
		t.lists(onlyonce.Filter{Key: "a%_'"}, e)
		for _, no := range []string{"%", "_", "acm", "acme ", "ACME", "POST /order", "order-", "' OR '1'='1", "a\x00", "\xff"} {
			t.lists(onlyonce.Filter{Tenant: no})
			t.lists(onlyonce.Filter{Operation: no})
			t.lists(onlyonce.Filter{Key: no})
			t.lists(onlyonce.Filter{Ref: no})
		}
	}},
	{"a list of more than a thousand records has them all", func(t *storeTest) {
		t.make(1100)
		t.listed(idsOf(1100))
	}},
	{"a limit bounds a list to the newest", func(t *storeTest) {
		t.make(20)
		all := t.list(onlyonce.Filter{})
		for _, limit := range []int{1, 7, 20, 50} {
			t.sameOrder(all[:min(limit, 20)], t.list(onlyonce.Filter{Limit: limit}))
		}
		t.sameOrder(all, t.list(onlyonce.Filter{Limit: -1}))
	}},
	{"pages together are the whole list", func(t *storeTest) {
		t.make(23)
		all := t.list(onlyonce.Filter{})
		for _, size := range []int{1, 4, 23} {
			t.sameOrder(all, t.pages(onlyonce.Filter{Limit: size}, func() {}))
		}
		t.lists(onlyonce.Filter{After: all[22]})
		t.sameOrder(all[5:], t.list(onlyonce.Filter{After: onlyonce.Record{ID: all[4].ID, CreatedAt: all[4].CreatedAt}}))
		t.lists(onlyonce.Filter{After: onlyonce.Record{ID: all[4].ID}}) // a record without a date comes last
	}},
	{"pages go with filters", func(t *storeTest) {
		t.make(24)
		for i := range 12 {
			t.settle(holdOf(t.lookup(idOf(fmt.Sprint(2*i)))), completed("made"))
		}
		f := onlyonce.Filter{State: onlyonce.StateCompleted, Tenant: "acme"}
		all := t.list(f)
		f.Limit = 5
		if t.sameOrder(all, t.pages(f, func() {})); len(all) != 12 {
			t.Errorf("the list has %d records, want 12", len(all))
		}
	}},
	{"pages show what stays exactly once while records come and go", func(t *storeTest) {
		t.make(40)
		var n int
		paged := t.pages(onlyonce.Filter{Limit: 3}, func() {
			t.mustClaim(claimOf(fmt.Sprint("new ", n)))
			if n < 10 { // every fourth goes, the oldest first
				t.settle(holdOf(t.lookup(idOf(fmt.Sprint(4*n)))), onlyonce.Settlement{})
			}
			n++
		})
		times := map[onlyonce.ID]int{}
		for _, r := range paged {
			times[r.ID]++
		}
		for i := range 40 {
			if n := times[idOf(fmt.Sprint(i))]; i%4 != 0 && n != 1 {
				t.Errorf("record %d was listed %d times", i, n)
			}
		}
	}},
	{"lists and claims do not disturb each other", func(t *storeTest) {
		t.make(20)
		together(4, func(g int) {
			for i := range 15 {
				if g == 0 {
					for _, err := range t.store.(onlyonce.Lister).List(t.ctx, onlyonce.Filter{Limit: 10}) {
						if err != nil {
							t.Errorf("list: %v", err)
						}
					}
					continue
				}
				c := claimOf(fmt.Sprint("beside ", g, i))
				r, err := t.store.Claim(t.ctx, c)
				if err == nil && r.Owner == c.Owner {
					err = t.store.Settle(t.ctx, holdOf(r), completed("made"))
				}
				if err != nil || r.Owner != c.Owner {
					t.Errorf("claim and settlement got %s and error %v", describe(r), err)
				}
			}
		})
		if n := len(t.list(onlyonce.Filter{})); n != 20+45 {
			t.Errorf("the list has %d records, want 65", n)
		}
	}},
	{"a list that is left early leaves the store as it was", func(t *storeTest) {
		t.make(20)
		for range 30 {
			for _, err := range t.store.(onlyonce.Lister).List(t.ctx, onlyonce.Filter{}) {
				if err != nil {
					t.Fatalf("list: %v", err)
				}
				break
			}
		}
		t.mustClaim(claimOf("still works"))
	}},
	{"a list can be walked again", func(t *storeTest) {
		t.make(5)
		seq := t.store.(onlyonce.Lister).List(t.ctx, onlyonce.Filter{Limit: 3})
		for range 2 {
			n := 0
			for _, err := range seq {
				if err != nil {
					t.Fatalf("list: %v", err)
				}
				n++
			}
			if n != 3 {
				t.Errorf("listed %d, want 3", n)
			}
		}
	}},
	{"a store can be asked and written to while it is listed", func(t *storeTest) {
		t.make(10)
		for r, err := range t.store.(onlyonce.Lister).List(t.ctx, onlyonce.Filter{}) {
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			t.settle(holdOf(t.lookup(r.ID)), completed("made"))
			t.mustClaim(claimOf("beside " + r.ID.Key))
		}
		if n := len(t.list(onlyonce.Filter{State: onlyonce.StateCompleted})); n != 10 {
			t.Errorf("%d are completed, want 10", n)
		}
	}},
}

// snapshotOf returns a snapshot of a record that was read just now.
func snapshotOf(r onlyonce.Record) snapshot { return snapshot{r, time.Now()} }

// make claims n commands, whose keys are their numbers, one after another.
func (t *storeTest) make(n int) {
	t.Helper()
	for _, id := range idsOf(n) {
		t.mustClaim(claimOn(id))
	}
}

func idsOf(n int) []onlyonce.ID {
	ids := make([]onlyonce.ID, n)
	for i := range ids {
		ids[i] = idOf(fmt.Sprint(i))
	}
	return ids
}

func (t *storeTest) list(f onlyonce.Filter) []onlyonce.Record {
	t.Helper()
	var all []onlyonce.Record
	for r, err := range t.store.(onlyonce.Lister).List(t.ctx, f) {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		all = append(all, r)
	}
	return all
}

// lists wants a filter to list exactly these records, in any order.
func (t *storeTest) lists(f onlyonce.Filter, want ...onlyonce.ID) {
	t.Helper()
	var got []onlyonce.ID
	for _, r := range t.list(f) {
		got = append(got, r.ID)
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(id onlyonce.ID) bool { return slices.Contains(got, id) })
	if len(missing) > 0 || len(got) != len(want) {
		t.Errorf("the filter %+q shows %q, want %q", []string{f.Tenant, f.Operation, f.Key, f.Ref, string(f.State)}, got, want)
	}
}

// pages reads a list page by page, as a console does, and calls between after each
// page.
func (t *storeTest) pages(f onlyonce.Filter, between func()) []onlyonce.Record {
	t.Helper()
	var all []onlyonce.Record
	for {
		page := t.list(f)
		if len(page) > f.Limit {
			t.Fatalf("a page has %d records, over its limit of %d", len(page), f.Limit)
		}
		all = append(all, page...)
		if len(page) < f.Limit {
			return all
		}
		f.After = page[len(page)-1]
		between()
	}
}

func (t *storeTest) sameOrder(want, got []onlyonce.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("the list has %d records, want %d", len(got), len(want))
		return
	}
	for i := range want {
		t.wantSame(want[i], got[i])
	}
}

var countRules = []rule{
	{"the records of each tenant, operation and state are counted", func(t *storeTest) {
		want := map[onlyonce.RecordCount]int{}
		for i, stand := range recordStates {
			for n, id := range []onlyonce.ID{{Tenant: "acme", Operation: "POST /orders"}, {Tenant: "\xff\x00", Operation: `\x41`}, {}} {
				for j := range n + 1 {
					id.Key = fmt.Sprint(i, " ", j)
					r := stand.enter(t, claimOn(id))
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
	{"nothing that is gone is counted", func(t *storeTest) {
		t.settle(holdOf(t.mustClaim(claimOf("released"))), onlyonce.Settlement{})
		t.settle(holdOf(t.mustClaim(claimOf("expired"))), keeping(completed("made"), short))
		t.awaitExpiry(idOf("expired"))
		if all := t.countRecords(); len(all) != 0 {
			t.Errorf("%v were counted", all)
		}
	}},
	{"a count has the age of the oldest", func(t *storeTest) {
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
