package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// openCommands returns how many commands are in the first partition's set.
func openCommands(t *testing.T, client rueidis.Client) int64 {
	t.Helper()
	n, err := client.Do(t.Context(), client.B().Zcard().Key("onlyonce:{00}:open").Build()).AsInt64()
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
		r, err := s.Claim(t.Context(), hazard.Claim(key()))
		if err == nil {
			err = s.Renew(t.Context(), hazard.Hold(r), time.Minute, nil)
		}
		if n := openCommands(t, client); n != 1 || err != nil {
			t.Errorf("%s: %d commands are open while it runs, error %v", st.State, n, err)
		}
		if err := s.Settle(t.Context(), hazard.Hold(r), st); err != nil {
			t.Error(err)
		}
		want := int64(0)
		if st.State == onlyonce.StateUnknown {
			want = 1
		}
		last = r
		if n := openCommands(t, client); n != want {
			t.Errorf("%s: %d commands are open afterwards", st.State, n)
		}
	}
	last, err := s.Lookup(t.Context(), last.ID)
	if err == nil {
		err = s.Resolve(t.Context(), last, onlyonce.Settlement{})
	}
	if n := openCommands(t, client); n != 0 || err != nil {
		t.Errorf("%d commands are open after a decision, error %v", n, err)
	}
}

func TestUnresolved_ExpiredCommandsLeaveTheSetAlthoughNobodyCounts(t *testing.T) {
	_, client, s := migrated(t)
	key := inOnePartition()
	const all = 400
	var last onlyonce.ID
	for range all {
		c := hazard.Claim(key())
		c.Lease, c.Keep = time.Microsecond, time.Microsecond
		if _, err := s.Claim(t.Context(), c); err != nil {
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
