package dynamostore_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynalite"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// Of many stores, as many processes have them, each take-over of a command goes to one, and
// only that one can settle.
func TestStore_ACommandThatLapsesGoesFromProcessToProcess(t *testing.T) {
	t.Parallel()
	address := dynalite.Start(t).Address
	client := connect(t, address)
	migrate(t, client, dynamostore.Config{})
	const processes, takeOvers = 4, 6
	var mu sync.Mutex
	var holds []onlyonce.Hold
	var settled atomic.Int64
	var running sync.WaitGroup
	for range processes {
		s := open(t, connect(t, address), dynamostore.Config{})
		for range 4 {
			running.Go(func() {
				for settled.Load() == 0 {
					c := hazard.Claim("k")
					c.Lease, c.TakeUnknown = time.Millisecond, true
					r, err := s.Claim(t.Context(), c)
					switch {
					case err != nil:
						t.Error(err)
						return
					case r.Owner != c.Owner:
						continue
					}
					mu.Lock()
					holds = append(holds, hazard.Hold(r))
					last := len(holds) >= takeOvers
					mu.Unlock()
					if !last {
						continue
					}
					switch err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); {
					case err == nil:
						settled.Add(1)
					case !errors.Is(err, onlyonce.ErrLost):
						t.Error(err)
					}
				}
			})
		}
	}
	running.Wait()
	if n := settled.Load(); n != 1 {
		t.Errorf("%d attempts could settle", n)
	}
	slices.SortFunc(holds, func(a, b onlyonce.Hold) int { return int(a.Fence - b.Fence) })
	for i := range holds[1:] {
		if holds[i].Fence == holds[i+1].Fence {
			t.Errorf("two attempts have the fence %d", holds[i].Fence)
		}
	}
	s := open(t, client, dynamostore.Config{})
	if r, err := s.Lookup(t.Context(), holds[0].ID); err != nil || r.Attempt != len(holds) {
		t.Errorf("of %d claims that were granted, the last is attempt %d, error %v", len(holds), r.Attempt, err)
	}
}
