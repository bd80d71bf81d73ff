package redisstore_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// openCommands returns how many commands are in the first partition's set.
func openCommands(t *testing.T, client rueidis.Client) int64 {
	t.Helper()
	names := keys(t, client, "onlyonce:{00}:*:open")
	if len(names) == 0 {
		return 0
	}
	n, err := client.Do(t.Context(), client.B().Zcard().Key(names[0]).Build()).AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUnresolved_CountsMoreRecordsOfAPartitionThanItReadsAtATime(t *testing.T) {
	_, client, s := migrated(t)
	const all = 600
	key := inOnePartition()
	for i := range all {
		c := hazard.Claim(key())
		if i%3 == 0 { // expires at once
			c.Lease, c.Keep = time.Microsecond, time.Microsecond
		}
		r, err := s.Claim(t.Context(), c)
		if err == nil && i%3 > 0 {
			err = s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{State: onlyonce.StateUnknown, Keep: onlyonce.KeepForever})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	do(t, client, "SCRIPT", "FLUSH", "SYNC")
	n, oldest, err := s.Unresolved(t.Context())
	for end := time.Now().Add(time.Minute); n > all/3*2 && err == nil && time.Now().Before(end); { // until the others have expired
		n, oldest, err = s.Unresolved(t.Context())
	}
	if n != all/3*2 || oldest <= 0 || err != nil {
		t.Errorf("%d are unresolved, the oldest for %v, with error %v", n, oldest, err)
	}
	if n := openCommands(t, client); n != all/3*2 {
		t.Errorf("the set has %d commands", n)
	}
}

// unresolved tests how many records the store counts.
func unresolved(t *testing.T, s *redisstore.Store, want int) {
	t.Helper()
	if n, _, err := s.Unresolved(t.Context()); n != want || err != nil {
		t.Errorf("%d are unresolved, error %v, want %d", n, err, want)
	}
}

// lapsing returns a claim whose lease lapses at once. Its record stays.
func lapsing(key string) onlyonce.Claim {
	c := hazard.Claim(key)
	c.Lease, c.Keep = time.Microsecond, onlyonce.KeepForever
	return c
}

func TestUnresolved_ACommandThatEndedWithAKnownOutcomeLeavesTheSet(t *testing.T) {
	_, client, s := migrated(t)
	key := inOnePartition()
	var last onlyonce.Record
	for _, st := range []onlyonce.Settlement{
		{State: onlyonce.StateCompleted, Keep: time.Hour},
		{State: onlyonce.StateFailed, Keep: time.Hour},
		{},
		{State: onlyonce.StateUnknown, Keep: time.Hour},
	} {
		r, err := s.Claim(t.Context(), lapsing(key()))
		if err != nil {
			t.Fatal(err)
		}
		unresolved(t, s, 1)
		if err := s.Settle(t.Context(), hazard.Hold(r), st); err != nil {
			t.Error(err)
		}
		want := 0
		if st.State == onlyonce.StateUnknown {
			want = 1
		}
		unresolved(t, s, want)
		last = r
		if n := openCommands(t, client); n != int64(want) {
			t.Errorf("%s: %d commands are open afterwards", st.State, n)
		}
	}
	last, err := s.Lookup(t.Context(), last.ID)
	if err == nil {
		err = s.Resolve(t.Context(), last, onlyonce.Settlement{})
	}
	if err != nil {
		t.Error(err)
	}
	unresolved(t, s, 0)
	if n := openCommands(t, client); n != 0 {
		t.Errorf("%d commands are open after a decision", n)
	}
}

func TestUnresolved_ARenewedLeaseIsCountedOnceItHasLapsed(t *testing.T) {
	_, client, s := migrated(t)
	r, err := s.Claim(t.Context(), lapsing(inOnePartition()()))
	if err != nil {
		t.Fatal(err)
	}
	unresolved(t, s, 1)
	if err := s.Renew(t.Context(), hazard.Hold(r), time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	unresolved(t, s, 0)
	if n := openCommands(t, client); n != 1 {
		t.Errorf("the set has %d commands while one runs", n)
	}
	if err := s.Renew(t.Context(), hazard.Hold(r), time.Microsecond, nil); err != nil {
		t.Fatal(err)
	}
	unresolved(t, s, 1)
}

func TestUnresolved_ACommandThatRunsAgainAfterItWasCountedIsCountedAgain(t *testing.T) {
	_, _, s := migrated(t)
	c := lapsing(inOnePartition()())
	r, err := s.Claim(t.Context(), c)
	if err == nil {
		err = s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{State: onlyonce.StateFailed, Keep: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	unresolved(t, s, 0)
	c.Owner, c.RetryFailed = hazard.NewOwner(), true
	if r, err := s.Claim(t.Context(), c); err != nil || r.Attempt != 2 {
		t.Fatalf("attempt %d, error %v", r.Attempt, err)
	}
	unresolved(t, s, 1)
}

func TestUnresolved_ARecordIsReadOnlyByTheFirstCall(t *testing.T) {
	_, client, s := migrated(t)
	key := inOnePartition()
	for range 300 { // more than are read at a time
		hazard.Run(t, s, key())
	}
	reads := func() int {
		t.Helper()
		text, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ = strings.Cut(text, "cmdstat_getrange:calls=")
		text, _, _ = strings.Cut(text, ",")
		n, _ := strconv.Atoi(text)
		return n
	}
	before := reads()
	unresolved(t, s, 0)
	if got := reads() - before; got != 300 {
		t.Errorf("%d records were read, want 300", got)
	}
	before = reads()
	unresolved(t, s, 0)
	if got := reads() - before; got != 0 {
		t.Errorf("%d records were read by a second call", got)
	}
}

func TestUnresolved_ExpiredCommandsLeaveTheSetAlthoughNobodyCounts(t *testing.T) {
	_, client, s := migrated(t)
	key := inOnePartition()
	const all = 400
	var last onlyonce.ID
	for range all {
		c := hazard.Claim(key())
		r, err := s.Claim(t.Context(), c)
		if err == nil {
			err = s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{State: onlyonce.StateUnknown, Keep: time.Microsecond})
		}
		if err != nil {
			t.Fatal(err)
		}
		last = c.ID
	}
	for end := time.Now().Add(time.Minute); ; {
		_, err := s.Lookup(t.Context(), last)
		if errors.Is(err, onlyonce.ErrNotFound) {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatal("the last record has not expired", err)
		}
	}
	for made := 0; openCommands(t, client) > all/4; made++ {
		if made == 50_000 {
			t.Fatalf("the set has %d of %d commands, which all have expired", openCommands(t, client), all)
		}
		hazard.Run(t, s, key())
	}
}
