package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

func TestStore_ACallThatFailsDoesNotFailThoseThatShareItsBatch(t *testing.T) {
	_, client, s := migrated(t)
	hazard.Run(t, s, "damaged")
	damaged := records(t, client)[0]
	do(t, client, "DEL", damaged)
	do(t, client, "RPUSH", damaged, "not a record")
	const callers = 64
	for shared, round := 0, 0; shared < 5; round++ {
		before := scriptRuns(t, client)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				c := hazard.Claim("damaged")
				if i > 0 {
					c = hazard.Claim(fmt.Sprint(round, " ", i))
				}
				r, err := s.Claim(t.Context(), c)
				if i == 0 {
					if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
						t.Errorf("claim of the damaged record: %+v, error %v", r, err)
					}
					err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: 1}, hazard.Completed)
					if err == nil || errors.Is(err, onlyonce.ErrLost) || !strings.Contains(err.Error(), "WRONGTYPE") {
						t.Errorf("settlement of the damaged record: %v", err)
					}
					return
				}
				if err == nil {
					err = s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
				}
				if err != nil {
					t.Errorf("%v: %v", c.ID, err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
		if scriptRuns(t, client)-before < callers {
			shared++
		}
	}
}

func TestStore_ABatchMeetsAServerThatHasForgotten(t *testing.T) {
	_, client, s := migrated(t)
	do(t, client, "FLUSHALL")
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if r, err := s.Claim(t.Context(), hazard.Claim(fmt.Sprint(i))); !errors.Is(err, redisstore.ErrForgotten) {
				t.Errorf("claim got %+v and error %v", r, err)
			}
		})
	}
	all.Wait()
}

// scriptRuns returns how often the server has run a script.
func scriptRuns(t *testing.T, client rueidis.Client) (n int) {
	t.Helper()
	text, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "cmdstat_evalsha:calls=")
	if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A server closes the connection of a client for which more waits than it allows, and has all of
// it in memory.
func TestStore_LargeResultsAreNotSentAllAtOnce(t *testing.T) {
	server := startRedis(t, "--client-output-buffer-limit", "normal 32mb 0 0")
	client := server.client(t)
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	hazard.CheckLargeRepeats(t, open(t, client, redisstore.Config{}))
}
