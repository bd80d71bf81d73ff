package memstore

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func idOf(i int) onlyonce.ID {
	return onlyonce.ID{Tenant: "acme", Operation: "POST /v1/orders", Key: fmt.Sprint(i)}
}

// fill settles n commands, each kept for a second.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		id := idOf(i)
		r, err := s.Claim(t.Context(), onlyonce.Claim{ID: id, Owner: "0123456789abcdef", Fingerprint: make([]byte, 32), Lease: time.Minute})
		if err == nil {
			err = s.Settle(t.Context(), onlyonce.Hold{ID: id, Owner: r.Owner, Fence: r.Fence}, onlyonce.Settlement{
				State: onlyonce.StateCompleted, Keep: time.Second,
				Result: onlyonce.Result{Header: map[string][]string{"Content-Type": {"application/json"}}, Body: make([]byte, 256)},
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemory_BytesAreCountedAboutAsTheyAreTakenAndAllReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		before := heap()
		compare := func(when string) (taken int64) {
			taken, counted := heap()-before, s.bytes.Load()
			if counted < taken*7/10 || counted > taken*13/10 {
				t.Errorf("%s, %d bytes are counted where %d are taken", when, counted, taken)
			}
			return taken
		}
		fill(t, s, 50_000)
		compare("before replays")
		for i := range 50_000 {
			if _, err := s.Lookup(t.Context(), idOf(i)); err != nil {
				t.Fatal(err)
			}
		}
		taken := compare("after replays")

		time.Sleep(time.Second)
		if n, err := s.Purge(t.Context(), 1_000_000); n != 50_000 || err != nil {
			t.Fatalf("purged %d with error %v, want 50000", n, err)
		}
		if left := heap() - before; left > taken/20 {
			t.Errorf("%d bytes of %d are still taken", left, taken)
		}
		if s.bytes.Load() != 0 || s.records.Load() != 0 {
			t.Errorf("%d bytes of %d records are still counted", s.bytes.Load(), s.records.Load())
		}
		runtime.KeepAlive(s)
	})
}

func TestMemory_WhatHasExpiredDoesNotPileUpWhenNobodyPurges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		for round := range 20 {
			fill(t, s, 1000)
			time.Sleep(time.Second)
			if n := s.records.Load(); n > 1100 {
				t.Fatalf("%d records are held in round %d", n, round)
			}
		}
	})
}

func TestMemory_AnAgendaReturnsEntriesInTheOrderTheyExpire(t *testing.T) {
	var a agenda
	all := map[*entry]bool{}
	for range 2000 {
		if e := (&entry{until: moment(rand.N(100))}); rand.IntN(3) > 0 {
			a.set(e)
			all[e] = true
		} else {
			for e := range all { // any one
				a.remove(e)
				a.remove(e)
				delete(all, e)
				break
			}
		}
	}
	var order []moment
	for e := a.due(never); e != nil; e = a.due(never) {
		order = append(order, e.until)
		a.remove(e)
	}
	if len(order) != len(all) || !slices.IsSorted(order) {
		t.Errorf("%d of %d entries came out, in order: %v", len(order), len(all), slices.IsSorted(order))
	}
}

func TestMemory_EntriesOfOneHashAreKeptApart(t *testing.T) {
	for gone := range 3 {
		var sh shard
		var all []*entry
		for i := range 3 {
			e := &entry{hash: 7, record: onlyonce.Record{ID: onlyonce.ID{Key: fmt.Sprint(i)}}}
			sh.put(e)
			all = append(all, e)
		}
		sh.remove(all[gone])
		for i, e := range all {
			if found := sh.find(e.record.ID, 7); (found == e) == (i == gone) || found != nil && found != e {
				t.Errorf("after %d was removed, %d is found as %v", gone, i, found)
			}
		}
	}
}

func TestMemory_AnEntryTakesAllOfARecordButWhatNeverChanges(t *testing.T) {
	r := onlyonce.Record{
		ID: onlyonce.ID{Key: "another"}, State: onlyonce.StateFailed, Fingerprint: []byte{1}, Summary: "s", Owner: "o", Attempt: 2, Fence: 3,
		Result: onlyonce.Result{Status: 201}, Error: "e", Final: true, Corrupt: true, Steps: map[string][]byte{"s": {1}},
		CreatedAt: time.Unix(1, 0), SettledAt: time.Unix(2, 0), LeaseLeft: 4, KeepLeft: 5,
	}
	for v, i := reflect.ValueOf(r), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("the test sets no %s", v.Type().Field(i).Name)
		}
	}
	e := entry{record: onlyonce.Record{ID: onlyonce.ID{Key: "k"}, CreatedAt: time.Unix(9, 0)}}
	e.replace(r)
	r.ID, r.CreatedAt = onlyonce.ID{Key: "k"}, time.Unix(9, 0)
	if !reflect.DeepEqual(e.record, r) {
		t.Errorf("the record is %+v, want %+v", e.record, r)
	}
}
