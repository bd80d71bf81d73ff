package servertest

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// publish makes the clock show an instant that is later, as a process would have published
// for which so much time has passed.
func publish(t *testing.T, client *clientv3.Client, passed time.Duration) {
	t.Helper()
	value := get(t, client, clockKey).Value
	binary.BigEndian.PutUint64(value, binary.BigEndian.Uint64(value)+uint64(passed.Microseconds()))
	binary.BigEndian.PutUint64(value[8:], binary.BigEndian.Uint64(value[8:])+1)
	put(t, client, clockKey, string(value))
}

// shown returns the time of the clock, in microseconds.
func shown(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	return int64(binary.BigEndian.Uint64(get(t, client, clockKey).Value))
}

// stopped runs f in a bubble, where no time passes, as if its machine were suspended. What f
// passes to outside runs outside the bubble.
func stopped(t *testing.T, f func(inner *testing.T, outside func(func()))) {
	t.Helper()
	calls, done := make(chan func()), make(chan bool)
	go func() {
		for call := range calls {
			call()
			done <- true
		}
	}()
	defer close(calls)
	synctest.Test(t, func(inner *testing.T) {
		f(inner, func(call func()) { calls <- call; <-done })
	})
}

// An hour passes for the others while a process is suspended.
func TestClock_AProcessWhoseClockStoodStillGivesWholeLeases(t *testing.T) {
	t.Parallel()
	server, client, observer := migrated(t)
	stopped(t, func(inner *testing.T, outside func(func())) {
		s := open(inner, connect(inner, server), patient)
		renewed, err := s.Claim(inner.Context(), hazard.Claim("renewed"))
		if err != nil {
			inner.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"renewed": func() error { return s.Renew(inner.Context(), hazard.Hold(renewed), 10*time.Minute, nil) },
			"claimed": func() error { _, err := s.Claim(inner.Context(), hazard.Claim("claimed")); return err },
		} {
			outside(func() { publish(t, client, time.Hour) })
			if err := call(); err != nil {
				inner.Errorf("%s: %v", name, err)
			}
			outside(func() {
				r, err := observer.Lookup(t.Context(), hazard.Claim(name).ID)
				if err != nil || r.LeaseLeft < 9*time.Minute {
					t.Errorf("%s: the lease of the record is %v, error %v", name, r.LeaseLeft, err)
				}
			})
		}
	})
}

// A lease that one process has seen end has ended for every process, including new ones.
func TestClock_ALeaseThatWasSeenLapsedHasLapsedForAll(t *testing.T) {
	t.Parallel()
	server, client, s := migrated(t)
	c := hazard.Claim("k")
	c.Lease = time.Millisecond
	if _, err := s.Claim(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	end := int64(binary.BigEndian.Uint64(get(t, client, headOf(c.ID)).Value[35:]))
	for {
		r, err := s.Lookup(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.LeaseLeft <= 0 {
			break
		}
	}
	if now := shown(t, client); now < end {
		t.Errorf("the clock shows %d, and the lease that was seen lapsed ends at %d", now, end)
	}
	stopped(t, func(inner *testing.T, _ func(func())) {
		r, err := open(inner, connect(inner, server), patient).Lookup(inner.Context(), c.ID)
		if err != nil || r.LeaseLeft > 0 {
			inner.Errorf("another process sees %+v, error %v", r, err)
		}
	})
}

// While no process is there, the clock of etcd's leader goes on.
func TestClock_GoesOnWhileNoProcessIsThere(t *testing.T) {
	t.Parallel()
	server, client, s := migrated(t)
	c := hazard.Claim("k")
	c.Lease = 100 * time.Millisecond
	if _, err := s.Claim(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	was := get(t, client, clockKey)
	lease := clientv3.LeaseID(binary.BigEndian.Uint64(was.Value[32:]))
	for { // until etcd has counted two seconds
		left, err := client.TimeToLive(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if left.TTL <= left.GrantedTTL-3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stopped(t, func(inner *testing.T, _ func(func())) {
		another := open(inner, connect(inner, server), patient)
		next := hazard.Claim("k")
		next.TakeUnknown = true
		if r, err := another.Claim(inner.Context(), next); err != nil || r.Owner != next.Owner || r.Attempt != 2 {
			inner.Errorf("the claim got %+v, error %v", r, err)
		}
	})
}

// A process that begins knows nothing of what has passed for the others since the clock was
// published.
func TestClock_AProcessThatBeginsDoesNotShortenTheLeasesOfOthers(t *testing.T) {
	t.Parallel()
	server, _, s := migrated(t)
	first, err := s.Claim(t.Context(), hazard.Claim("first"))
	if err != nil {
		t.Fatal(err)
	}
	another := open(t, connect(t, server), patient)
	second, err := another.Claim(t.Context(), hazard.Claim("second"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []onlyonce.Record{first, second} {
		for name, s := range map[string]*etcdstore.Store{"first": s, "second": another} {
			if now, err := s.Lookup(t.Context(), r.ID); err != nil || now.LeaseLeft < 9*time.Minute {
				t.Errorf("the lease of %s is %v in the %s process, error %v", r.ID.Key, now.LeaseLeft, name, err)
			}
		}
	}
}

func TestClock_AClockThatIsDamagedIsAnError(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	whole := string(get(t, client, clockKey).Value)
	for _, damaged := range []string{"", whole[:20], "\xff" + whole[1:]} {
		put(t, client, clockKey, damaged)
		if _, err := s.Claim(t.Context(), hazard.Claim("k")); !contains(err, "the store's clock is damaged") {
			t.Errorf("claim: %v", err)
		}
		if _, err := etcdstore.Migrate(t.Context(), client, etcdstore.Config{}); !contains(err, "the store's clock is damaged") {
			t.Errorf("migrate: %v", err)
		}
		wants(t, etcdstore.Config{}, client, "the store's clock is damaged")
	}
	put(t, client, clockKey, whole)
	hazard.Run(t, s, "k")
}

// A process that is a little behind does not change a record that has expired for another.
func TestClock_ARecordThatHasExpiredForAnotherProcessIsNotChanged(t *testing.T) {
	t.Parallel()
	server, client, observer := migrated(t)
	stopped(t, func(inner *testing.T, outside func(func())) {
		s := open(inner, connect(inner, server), patient)
		for name, call := range map[string]func(onlyonce.Hold) error{
			"settle": func(h onlyonce.Hold) error { return s.Settle(inner.Context(), h, hazard.Completed) },
			"renew":  func(h onlyonce.Hold) error { return s.Renew(inner.Context(), h, time.Minute, nil) },
		} {
			c := hazard.Claim(name)
			c.Lease, c.Keep = time.Second, 200*time.Millisecond
			r, err := s.Claim(inner.Context(), c)
			if err != nil {
				inner.Fatal(err)
			}
			outside(func() {
				publish(t, client, 1500*time.Millisecond)
				if _, err := observer.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
					t.Errorf("%s: the record has not expired for the other process: %v", name, err)
				}
			})
			if err := call(hazard.Hold(r)); !errors.Is(err, onlyonce.ErrLost) {
				inner.Errorf("%s of a record that has expired: %v", name, err)
			}
		}
	})
}
