package servertest

import (
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func TestStore_ACallSendsAsFewMessagesAsItCan(t *testing.T) {
	_, js, s := migrated(t)
	another := open(t, js, natsstore.Config{})
	var r onlyonce.Record
	claim := func(s *natsstore.Store, c onlyonce.Claim) func() error {
		return func() (err error) { r, err = s.Claim(t.Context(), c); return err }
	}
	renew := func(s *natsstore.Store, lease time.Duration) func() error {
		return func() error {
			return s.Renew(t.Context(), hazard.Hold(r), lease, map[string][]byte{"a": []byte("1")})
		}
	}
	settle := func(s *natsstore.Store) func() error {
		return func() error { return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed) }
	}
	kept := func(key string, keep time.Duration) onlyonce.Claim {
		c := hazard.Claim(key)
		c.Keep = keep
		return c
	}
	for _, step := range []struct {
		name string
		call func() error
		want uint64
	}{
		{"claim", claim(s, kept("k", 0)), 3}, // store it, read it back, and ask whether the stream has forgotten its records
		{"renewal", renew(s, time.Hour), 1},
		{"second renewal", renew(s, time.Hour), 1},
		{"settlement", settle(s), 2},                  // store it, and wake the waiters
		{"settlement that is repeated", settle(s), 2}, // read it and the clock
		{"repeat", claim(s, kept("k", 0)), 3},         // begin, and read it and the clock
		{"claim of another", claim(s, kept("l", 0)), 3},
		{"renewal by another process", renew(another, time.Hour), 3},
		{"settlement after another process's renewal", settle(s), 5}, // is not stored, and begins again by looking
		{"claim of a record that soon expires", claim(s, kept("m", time.Minute)), 3},
		{"its settlement", settle(s), 4},
		{"claim of a record that expires late", claim(s, kept("n", 2*time.Hour)), 3},
		{"its renewal", renew(s, time.Nanosecond), 1},
		{"settlement after the lease", settle(s), 4},
	} {
		before := js.Conn().Stats().OutMsgs
		if err := step.call(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if sent := js.Conn().Stats().OutMsgs - before; sent != step.want {
			t.Errorf("%s: %d messages were sent, want %d", step.name, sent, step.want)
		}
	}
	if now, err := another.Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateCompleted || string(now.Steps["a"]) != "1" {
		t.Errorf("the record is %+v, error %v", now, err)
	}
}
