package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
)

var purgeRules = []rule{
	{"a purge of nothing deletes nothing", func(t *storeTest) {
		if n := t.purge(100); n != 0 {
			t.Errorf("purged %d, want 0", n)
		}
	}},
	{"a purge deletes at most its limit, and in the end all that has expired", func(t *storeTest) {
		t.expire(25)
		if n := t.purge(0); n != 0 {
			t.Errorf("purged %d with the limit 0", n)
		}
		var all int
		for n := -1; n != 0; all += n {
			if n = t.purge(4); n > 4 {
				t.Errorf("purged %d, over the limit of 4", n)
			}
		}
		if all != 25 {
			t.Errorf("purged %d in all, want 25", all)
		}
	}},
	{"a purge deletes nothing that has not expired", func(t *storeTest) {
		var kept []snapshot
		for i, stand := range recordStates {
			kept = append(kept, snapshotOf(stand.enter(t, claimOf(fmt.Sprint("a", i)))))
		}
		for i, s := range endings {
			kept = append(kept, snapshotOf(t.complete(claimOf(fmt.Sprint("b", i)), keeping(s, 0))))
		}
		for i := range 100 {
			kept = append(kept, snapshotOf(t.complete(claimOf(fmt.Sprint("c", i)), completed("made"))))
		}
		t.purge(10) // the result of which only the ID is remembered
		t.expire(100)
		if n := t.purge(1000); n != 100 {
			t.Errorf("purged %d, want 100", n)
		}
		for _, was := range kept {
			t.unchanged(was)
		}
	}},
	{"a purge deletes no command that is retried, however old", func(t *storeTest) {
		const keep = 10 * short
		alive, lapsed, clock := claimOf("alive"), claimOf("lapsed"), claimOf("clock")
		h := holdOf(t.mustClaim(clock))
		t.settle(holdOf(t.mustClaim(alive)), keeping(failed("no stock"), keep))
		t.settle(holdOf(t.mustClaim(lapsed)), keeping(failed("no stock"), keep))
		kept := []onlyonce.Record{t.mustClaim(greedy(alive)), t.awaitLapse(holdOf(t.mustClaim(greedy(lapsed))))}
		t.settle(h, keeping(completed(""), keep))
		t.awaitExpiry(clock.ID)
		if n := t.purge(10); n != 1 {
			t.Errorf("purged %d, want only the command that is settled", n)
		}
		for _, r := range kept {
			t.wantSame(r, t.lookup(r.ID))
		}
	}},
	{"a command that was settled anew is purged once, when its new keep ends", func(t *storeTest) {
		anew, prolonged := claimOf("anew"), claimOf("prolonged")
		t.settle(holdOf(t.mustClaim(anew)), failed("no stock"))
		t.settle(holdOf(t.mustClaim(prolonged)), keeping(failed("no stock"), 10*short))
		h := holdOf(t.mustClaim(greedy(anew)))
		t.complete(greedy(prolonged), completed("made"))
		t.settle(h, keeping(completed("made"), 10*short))
		t.awaitExpiry(anew.ID)
		if n := t.purge(10) + t.purge(10); n != 1 {
			t.Errorf("purged %d, want 1", n)
		}
		t.lookup(prolonged.ID)
	}},
	// A store may choose what a purge looks at when a command is claimed, before its keep is known.
	{"a purge leaves a record that is kept longer than others of its time, and deletes it in the end", func(t *storeTest) {
		var brief, longer []onlyonce.Hold
		var lasting []snapshot
		for i := range 4 {
			brief = append(brief, holdOf(t.mustClaim(claimKeeping(fmt.Sprint("brief ", i), short))))
			longer = append(longer, holdOf(t.mustClaim(claimKeeping(fmt.Sprint("longer ", i), short))))
			c := claimKeeping(fmt.Sprint("lasting ", i), short)
			t.settle(holdOf(t.mustClaim(c)), completed("made"))
			lasting = append(lasting, t.snap(c.ID))
		}
		for i := range brief {
			t.settle(longer[i], keeping(completed("made"), 10*short))
			t.settle(brief[i], keeping(completed("made"), short))
		}
		purged := 0
		for _, holds := range [][]onlyonce.Hold{brief, longer} {
			for _, h := range holds {
				t.awaitExpiry(h.ID)
			}
			for n := -1; n != 0; purged += n {
				n = t.purge(3)
			}
			for _, was := range lasting {
				t.unchanged(was)
			}
		}
		if want := len(brief) + len(longer); purged != want {
			t.Errorf("purged %d records in all, want %d", purged, want)
		}
	}},
	{"a fence grows over a purge", func(t *storeTest) {
		c := claimOf("k")
		last := int64(0)
		for range 5 {
			c = newCaller(c)
			r := t.above(last, c)
			last = r.Fence
			t.settle(holdOf(r), keeping(completed("made"), poll))
			t.awaitExpiry(c.ID)
			t.purge(10)
		}
		t.above(last, newCaller(c))
	}},
	{"a purged command begins anew", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.renew(h, long, steps{"charge": []byte("ch_1")})
		t.settle(h, keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.purge(10)
		t.wantErr(onlyonce.ErrLost, "renew after the purge", t.store.Renew(t.ctx, h, long, nil))
		t.wantErr(onlyonce.ErrLost, "settle after the purge", t.store.Settle(t.ctx, h, completed("made")))
		t.asNew(c.ID)
	}},
	{"a command that was claimed anew is not purged for its expired record", func(t *storeTest) {
		c := claimOf("k")
		t.settle(holdOf(t.mustClaim(c)), keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		r := t.mustClaim(newCaller(c))
		if n := t.purge(10); n != 0 {
			t.Errorf("purged %d, want 0", n)
		}
		t.wantSame(r, t.lookup(c.ID))
	}},
	{"purges that run at once delete each record once", func(t *storeTest) {
		t.expire(60)
		var all atomic.Int64
		together(4, func(int) {
			for {
				n, err := t.store.(onlyonce.Purger).Purge(t.ctx, 7)
				if err != nil {
					t.Errorf("purge: %v", err)
				}
				if n == 0 || err != nil {
					return
				}
				all.Add(int64(n))
			}
		})
		if n := all.Load() + int64(t.purge(1000)); n != 60 {
			t.Errorf("purged %d in all, want 60", n)
		}
	}},
	{"a purge of many records keeps to its limit", func(t *storeTest) {
		t.expire(600)
		if n := t.purge(500); n != 500 {
			t.Errorf("purged %d of 600 with the limit 500", n)
		}
		if n := t.purge(500); n != 100 {
			t.Errorf("purged %d of the last 100", n)
		}
	}},
	{"claims go on while a purge runs", func(t *storeTest) {
		t.expire(200)
		together(4, func(i int) {
			for n := range 25 {
				if i == 0 {
					if _, err := t.store.(onlyonce.Purger).Purge(t.ctx, 10); err != nil {
						t.Errorf("purge: %v", err)
					}
					continue
				}
				c := claimOf(fmt.Sprint("live ", i, n))
				r, err := t.store.Claim(t.ctx, c)
				if err != nil || r.Owner != c.Owner {
					t.Errorf("claim got %s and error %v", describe(r), err)
				} else if err := t.store.Settle(t.ctx, holdOf(r), completed("made")); err != nil {
					t.Errorf("settle: %v", err)
				}
			}
		})
		for i := 1; i < 4; i++ {
			for n := range 25 {
				t.lookup(idOf(fmt.Sprint("live ", i, n)))
			}
		}
	}},
}

func (t *storeTest) purge(limit int) int {
	t.Helper()
	n, err := t.store.(onlyonce.Purger).Purge(t.ctx, limit)
	if err != nil {
		t.Fatalf("purge: %v", err)
	}
	return n
}

// expire creates n records that have expired. It claims all before it settles any,
// because a store may delete expired records when a new command is claimed.
func (t *storeTest) expire(n int) {
	t.Helper()
	holds := make([]onlyonce.Hold, n)
	together(8, func(g int) {
		for i := g; i < n; i += 8 {
			r, err := t.store.Claim(t.ctx, claimOf(fmt.Sprint("due ", i)))
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			holds[i] = holdOf(r)
		}
	})
	together(8, func(g int) {
		for i := g; i < n; i += 8 {
			if err := t.store.Settle(t.ctx, holds[i], keeping(completed("made"), short)); err != nil {
				t.Errorf("settle: %v", err)
			}
		}
	})
	for _, h := range holds {
		t.awaitExpiry(h.ID)
	}
}
