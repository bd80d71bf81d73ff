package redisstore_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// indexReads returns how often sweeps have read an index.
func indexReads(t *testing.T, client rueidis.Client) (n int) {
	t.Helper()
	text, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "cmdstat_xrange:calls=")
	_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n)
	return n
}

func TestStore_EntriesWithoutARecordLeaveTheIndexUntilAllAreTooYoungForThat(t *testing.T) {
	_, client, s := migrated(t)
	index := keys(t, client, "onlyonce:{00}:*:index")[0]
	const old = 100
	for i := range old { // of commands whose records Redis has deleted long ago
		do(t, client, "XADD", index, fmt.Sprint(1000+i), "n", base64.RawURLEncoding.EncodeToString(make([]byte, 32)))
	}
	key, claimed := inOnePartition(), int64(0)
	claim := func(commands int) {
		for range commands {
			if _, err := s.Claim(t.Context(), hazard.Claim(key())); err != nil {
				t.Fatal(err)
			}
			claimed++
		}
	}
	const some = 256 // commands, of which one in 32 starts a sweep
	const tries = 40
	entries := int64(-1)
	for range tries {
		claim(some)
		var err error
		if entries, err = client.Do(t.Context(), client.B().Xlen().Key(index).Build()).AsInt64(); err != nil {
			t.Fatal(err)
		}
		if entries == claimed {
			break
		}
	}
	if entries != claimed {
		t.Fatalf("the index has %d entries after %d claims", entries, claimed)
	}
	for range tries {
		before := indexReads(t, client)
		claim(some)
		if indexReads(t, client) == before {
			return
		}
	}
	t.Errorf("sweeps still read an index without an entry of an hour ago")
}
