package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// TestStore_AConnectionCutAtAnyByteLosesAndDoublesNothing cuts the connection of each call
// at every byte, in both directions, until the call is over before the cut.
// What the caller got is then repeated over a connection that lasts.
func TestStore_AConnectionCutAtAnyByteLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	server, _, clean := migrated(t)
	w := hazard.NewWay(t, server.Address())
	client := server.clientWith(t, func(o *rueidis.ClientOption) { o.InitAddress, o.ForceSingleClient = []string{w.Address()}, true })
	s := open(t, client, redisstore.Config{})
	settlement := hazard.Completed
	steps := map[string][]byte{"charge": []byte("ch_1")}
	for _, cut := range []string{"claim", "renew", "settle"} {
		for direction, way := range []string{hazard.There: "there", hazard.Back: "back"} {
			cuts := 0
			for n := 0; ; n++ {
				c := hazard.Claim(fmt.Sprint(cut, way, n))
				var claimed onlyonce.Record
				for _, step := range []struct {
					name string
					call func(onlyonce.Store) error
				}{
					{"claim", func(s onlyonce.Store) (err error) { claimed, err = s.Claim(t.Context(), c); return err }},
					{"renew", func(s onlyonce.Store) error { return s.Renew(t.Context(), hazard.Hold(claimed), time.Hour, steps) }},
					{"settle", func(s onlyonce.Store) error { return s.Settle(t.Context(), hazard.Hold(claimed), settlement) }},
				} {
					if step.name != cut {
						if err := step.call(clean); err != nil {
							t.Fatalf("%s: %v", step.name, err)
						}
						continue
					}
					connected(t, s)
					w.CutAfter(direction, n)
					err := step.call(s)
					if w.HasCut(direction) {
						cuts++
					} else if n = -1; err != nil {
						t.Fatalf("%s without a cut: %v", cut, err)
					}
					if errors.Is(err, onlyonce.ErrLost) {
						t.Errorf("%s, cut %s: %v", c.ID.Key, way, err)
					}
					if err != nil {
						err = step.call(clean)
					}
					if err != nil || claimed.Owner != c.Owner || claimed.Attempt != 1 {
						t.Fatalf("%s, cut %s: again %+v, error %v", c.ID.Key, way, claimed, err)
					}
				}
				r, err := clean.Lookup(t.Context(), c.ID)
				if err != nil || r.State != onlyonce.StateCompleted || r.Fence != claimed.Fence || string(r.Result.Body) != "made" || string(r.Steps["charge"]) != "ch_1" {
					t.Fatalf("%s, cut %s: the record is %+v, error %v, after the claim %+v", c.ID.Key, way, r, err, claimed)
				}
				if n < 0 {
					break
				}
			}
			if cuts < 4 {
				t.Errorf("%s, %s: only %d cuts", cut, way, cuts)
			}
			t.Logf("%s, %s: %d cuts", cut, way, cuts)
		}
	}
}

// connected waits until the store has a connection again.
func connected(t *testing.T, s onlyonce.Store) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err = s.Lookup(t.Context(), onlyonce.ID{Key: "none"}); errors.Is(err, onlyonce.ErrNotFound) {
			return
		}
	}
	t.Fatalf("the connection does not come back: %v", err)
}
