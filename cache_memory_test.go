package onlyonce

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func testCache(bytes int64) *cache {
	return newCache(&Config{CacheBytes: bytes, CacheMaxAge: time.Minute})
}

// recordOf returns a completed record with a body of so many bytes.
func recordOf(key string, body int) *Record {
	return &Record{
		ID: ID{"acme", "POST /orders", key}, State: StateCompleted, Fingerprint: make([]byte, 32), Owner: "0123456789abcdef", Attempt: 1, Fence: 1,
		Result: Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: make([]byte, body)},
	}
}

func (c *cache) has(key string) bool {
	var r Record
	return c.recall(recordOf(key, 0).ID, time.Now(), &r)
}

// check compares the list with the map and the count of bytes.
func (c *cache) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int
	var bytes int64
	var older *cached
	for e := c.oldest; e != nil; older, e = e, e.newer {
		if n++; e.older != older || c.byID[e.record.ID] != e {
			t.Fatalf("the list is broken at %q", e.record.ID)
		}
		bytes += e.size
	}
	if n != len(c.byID) || bytes != c.bytes || bytes > c.maxBytes || c.newest != older {
		t.Fatalf("the list has %d records with %d bytes, the map %d, and %d bytes of %d are counted", n, bytes, len(c.byID), c.bytes, c.maxBytes)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // a pool keeps its values through one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCache_ItTakesNoMoreMemoryThanItMay fills a cache with records of several kinds.
func TestCache_ItTakesNoMoreMemoryThanItMay(t *testing.T) {
	const most = 16 << 20
	for name, shape := range map[string]func(*Record){
		"empty":      func(r *Record) { r.Result = Result{}; r.Fingerprint = nil },
		"short":      func(*Record) {},
		"long keys":  func(r *Record) { r.ID.Tenant += strings.Repeat("t", 1000); r.ID.Key += strings.Repeat("k", 1000) },
		"long body":  func(r *Record) { r.Result.Body = make([]byte, 100<<10) },
		"body":       func(r *Record) { r.Result.Body = make([]byte, 1<<10+1) },
		"long error": func(r *Record) { r.State, r.Final, r.Error = StateFailed, true, strings.Repeat("e", 2<<10) },
		"many fields": func(r *Record) {
			for i := range 40 {
				r.Result.Header[fmt.Sprintf("X-Field-%d", i)] = []string{"a value", "another value"}
			}
		},
		"steps": func(r *Record) {
			r.Steps = map[string][]byte{}
			for i := range 12 {
				r.Steps[fmt.Sprint("step ", i)] = make([]byte, 64)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			// In a bubble, the timer of an earlier cache does not remove its records meanwhile.
			synctest.Test(t, func(t *testing.T) {
				c := testCache(most)
				before := heap()
				for i := 0; ; i++ {
					r := recordOf(fmt.Sprint(i), 0)
					shape(r)
					was := c.bytes
					if c.put(r, time.Now()); c.bytes <= was {
						break
					}
				}
				c.check(t)
				if taken := heap() - before; taken > most || taken < most/4 {
					t.Errorf("the cache takes %d bytes, and %d are counted of %d", taken, c.bytes, most)
				}
				runtime.KeepAlive(c)
			})
		})
	}
}

func TestCache_WhatIsLongerThanAllOfItIsNotKept(t *testing.T) {
	c := testCache(64 << 10)
	c.put(recordOf("short", 10), time.Now())
	c.put(recordOf("long", 64<<10), time.Now())
	if !c.has("short") || c.has("long") {
		t.Errorf("short: %v, long: %v", c.has("short"), c.has("long"))
	}
}

func TestCache_WhatIsReplayedStaysWhileOthersComeAndGo(t *testing.T) {
	c := testCache(64 << 10)
	c.put(recordOf("often replayed", 1<<10), time.Now())
	for i := range 1000 {
		if !c.has("often replayed") {
			t.Fatalf("it was evicted after %d others", i)
		}
		c.put(recordOf(fmt.Sprint(i), 1<<10), time.Now())
		c.check(t)
	}
	if c.has("0") || !c.has("999") {
		t.Errorf("the first: %v, the last: %v", c.has("0"), c.has("999"))
	}
}

func TestCache_WhatHasEndedLeavesTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCache(64 << 20)
		for i := range 10_000 {
			r := recordOf(fmt.Sprint(i), 10)
			if i%3 == 0 {
				r.KeepLeft = time.Second
			}
			c.put(r, time.Now())
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2*time.Minute - 10*time.Second)
		synctest.Wait()
		c.check(t)
		if len(c.byID) != 0 || c.sweeping {
			t.Errorf("%d records are left; a timer is set: %v", len(c.byID), c.sweeping)
		}
		c.put(recordOf("later", 10), time.Now())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(c.byID) != 0 {
			t.Error("the later record is left")
		}
	})
}

// TestCache_AMachineThatWasSuspendedReplaysNothingOld lets only one of the clocks advance.
func TestCache_AMachineThatWasSuspendedReplaysNothingOld(t *testing.T) {
	c := testCache(64 << 10)
	c.put(recordOf("k", 10), time.Now())
	e := c.byID[recordOf("k", 0).ID]
	if !c.has("k") || time.Until(e.until) > time.Minute || e.untilWall != e.until.UnixNano() {
		t.Fatalf("it ends at %v and %v", e.until, e.untilWall)
	}
	e.untilWall = time.Now().UnixNano() // as if the clock on the wall had advanced by a minute
	if c.has("k") {
		t.Error("it does not end by the clock on the wall")
	}
	e.until, e.untilWall = time.Now(), time.Now().Add(time.Hour).UnixNano() // as if that clock had been set back
	if c.has("k") {
		t.Error("it does not end by the monotonic clock")
	}
}

// TestCache_ItIsSafeForConcurrentUse looks for races, and compares every record with its key.
func TestCache_ItIsSafeForConcurrentUse(t *testing.T) {
	c := testCache(32 << 10)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range 3000 {
				key := fmt.Sprint("k", r.IntN(60))
				switch n := r.IntN(20); {
				case n == 0:
					c.forget(recordOf(key, 0).ID)
				case n == 1 && i%100 == 0:
					c.forgetAll()
				case n < 8:
					rec := recordOf(key, r.IntN(2<<10))
					rec.Fence, rec.Result.Ref = r.Int64N(5), key
					c.put(rec, time.Now())
				default:
					var got Record
					if c.recall(recordOf(key, 0).ID, time.Now(), &got) && (got.ID.Key != key || got.Result.Ref != key) {
						t.Errorf("%q got the record of %q", key, got.ID.Key)
					}
				}
			}
		})
	}
	all.Wait()
	c.check(t)
}

// TestRecord_WhatIsFinalNoClaimTakesOver holds Concluded to the rule of Claim.Takes.
func TestRecord_WhatIsFinalNoClaimTakesOver(t *testing.T) {
	for _, state := range []State{"", StateProcessing, StateCompleted, StateFailed, StateUnknown, "nonsense"} {
		for _, final := range []bool{false, true} {
			r := Record{State: state, Final: final, Owner: "another"}
			taken := Claim{SkipFingerprint: true, RetryFailed: true, TakeUnknown: true}.Takes(r)
			settled := state == StateCompleted || state == StateFailed || state == StateUnknown
			if r.Concluded() != (settled && !taken) {
				t.Errorf("%q, final %v: Concluded is %v; a claim takes it: %v", state, final, r.Concluded(), taken)
			}
		}
	}
}
