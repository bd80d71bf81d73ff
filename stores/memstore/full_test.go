package memstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func claim(t *testing.T, s *memstore.Store, key string) (onlyonce.Hold, error) {
	t.Helper()
	c := claimOf(key)
	r, err := s.Claim(t.Context(), c)
	if err == nil && r.Owner != c.Owner {
		t.Fatalf("%q was not given", key)
	}
	return onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, err
}

func mustClaim(t *testing.T, s *memstore.Store, key string) onlyonce.Hold {
	t.Helper()
	h, err := claim(t, s, key)
	if err != nil {
		t.Fatalf("claim of %q: %v", key, err)
	}
	return h
}

func settle(t *testing.T, s *memstore.Store, h onlyonce.Hold, st onlyonce.Settlement) {
	t.Helper()
	if err := s.Settle(t.Context(), h, st); err != nil {
		t.Fatalf("settle: %v", err)
	}
}

func wantFull(t *testing.T, s *memstore.Store, setting string) {
	t.Helper()
	_, err := claim(t, s, "one too many")
	if !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), setting) {
		t.Errorf("claim returned %v, want ErrUnavailable that names %s", err, setting)
	}
	if _, err := s.Lookup(t.Context(), claimOf("one too many").ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("lookup of the rejected command returned %v, want ErrNotFound", err)
	}
}

func TestFull_AStoreFullOfRecordsRejectsNewCommandsUntilSomeExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{MaxRecords: 3})
		settled := mustClaim(t, s, "settled")
		running := mustClaim(t, s, "running")
		settle(t, s, mustClaim(t, s, "kept for good"), onlyonce.Settlement{State: onlyonce.StateCompleted})
		wantFull(t, s, "Config.MaxRecords")

		settle(t, s, settled, onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour})
		time.Sleep(time.Hour - time.Nanosecond)
		wantFull(t, s, "Config.MaxRecords")
		time.Sleep(time.Nanosecond)
		mustClaim(t, s, "new")
		wantFull(t, s, "Config.MaxRecords")

		if _, err := s.Lookup(t.Context(), running.ID); err != nil {
			t.Errorf("a lapsed command was dropped: %v", err)
		}
		settle(t, s, running, onlyonce.Settlement{})
		mustClaim(t, s, "in its place")
	})
}

func TestFull_AStoreFullOfBytesTakesWhatRunsAndRejectsWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{MaxBytes: 64 << 10})
		big, running := mustClaim(t, s, "big"), mustClaim(t, s, "running")
		st := answer
		st.Result.Body = make([]byte, 128<<10)
		settle(t, s, big, st)
		wantFull(t, s, "Config.MaxBytes")

		if err := s.Renew(t.Context(), running, time.Minute, map[string][]byte{"step": make([]byte, 1<<10)}); err != nil {
			t.Errorf("renew in a full store: %v", err)
		}
		settle(t, s, running, answer)
		time.Sleep(st.Keep)
		mustClaim(t, s, "new")
	})
}

func TestFull_EveryWayToEndARecordFreesItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{MaxBytes: 16 << 10})
		short := answer
		short.Keep = time.Second
		for i := range 200 {
			released, expired, resolved := mustClaim(t, s, fmt.Sprint("a", i)), mustClaim(t, s, fmt.Sprint("b", i)), mustClaim(t, s, fmt.Sprint("c", i))
			if err := s.Renew(t.Context(), released, time.Minute, map[string][]byte{"step": make([]byte, 1<<10)}); err != nil {
				t.Fatal(err)
			}
			settle(t, s, released, onlyonce.Settlement{})
			settle(t, s, expired, short)
			settle(t, s, resolved, onlyonce.Settlement{State: onlyonce.StateUnknown, Result: answer.Result})
			if err := s.Resolve(t.Context(), onlyonce.Record{ID: resolved.ID, Fence: resolved.Fence, State: onlyonce.StateUnknown}, onlyonce.Settlement{State: onlyonce.StateFailed, Error: "retry", Keep: time.Hour}); err != nil {
				t.Fatal(err)
			}
			c := claimOf(resolved.ID.Key)
			c.Owner, c.RetryFailed = "another", true
			r, err := s.Claim(t.Context(), c)
			if err != nil || r.Attempt != 2 {
				t.Fatalf("retry is attempt %d with error %v", r.Attempt, err)
			}
			settle(t, s, onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, short)
			time.Sleep(time.Second)
		}
	})
}

func TestFull_ClaimsAtOnceDoNotExceedTheLimit(t *testing.T) {
	s := memstore.New(memstore.Config{MaxRecords: 500})
	var given atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				if _, err := s.Claim(t.Context(), claimOf(fmt.Sprint(g, i))); err == nil {
					given.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := given.Load(); n != 500 {
		t.Errorf("%d commands were given, want 500", n)
	}
}

func TestFull_NonsenseInAConfigPanicsAndSaysWhatToWrite(t *testing.T) {
	for _, cfg := range []memstore.Config{{MaxRecords: -1}, {MaxBytes: -1}} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "write a positive value") {
					t.Errorf("New(%+v) panicked with %q", cfg, text)
				}
			}()
			memstore.New(cfg)
		}()
	}
}

func TestFull_AReplayAllocatesNothingAndANewCommandTwice(t *testing.T) {
	s := memstore.New(memstore.Config{})
	n := 0
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	c := claimOf("")
	once := testing.AllocsPerRun(1000, func() {
		c.ID.Key = keys[n]
		n++
		r, err := s.Claim(t.Context(), c)
		if err == nil {
			err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, answer)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	c.Owner = "another"
	if _, err := s.Claim(t.Context(), c); err != nil { // the first replay makes the header
		t.Fatal(err)
	}
	replay := testing.AllocsPerRun(1000, func() {
		if r, err := s.Claim(t.Context(), c); err != nil || len(r.Result.Header) != 2 {
			t.Fatal(err)
		}
	})
	if once > 2 || replay > 0 {
		t.Errorf("a new command allocates %v times and a replay %v times, want at most 2 and 0", once, replay)
	}
}
