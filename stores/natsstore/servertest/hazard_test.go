package servertest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

var completed = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Body: []byte("made")}, Keep: time.Hour}

func claimOf(key string) onlyonce.Claim {
	return onlyonce.Claim{ID: onlyonce.ID{Tenant: "acme", Operation: "POST /v1/orders", Key: key}, Owner: string(random()), SkipFingerprint: true, Lease: 10 * time.Minute}
}

func holdOf(r onlyonce.Record) onlyonce.Hold {
	return onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
}

// run claims and completes a command, and returns its ID.
func run(t *testing.T, s *natsstore.Store, key string) onlyonce.ID {
	t.Helper()
	r, err := s.Claim(t.Context(), claimOf(key))
	if err == nil {
		err = s.Settle(t.Context(), holdOf(r), completed)
	}
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return r.ID
}

// subjectOf returns the subject of a command's record.
func subjectOf(id onlyonce.ID) string {
	hash := id.Hash()
	return "onlyonce.records." + hex.EncodeToString(hash[:1]) + "." + base64.RawURLEncoding.EncodeToString(hash[:])
}

// stream returns the stream of the store with the default name.
func stream(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	s, err := js.Stream(t.Context(), natsstore.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored returns the message of a command's record.
func stored(t *testing.T, js jetstream.JetStream, id onlyonce.ID) *jetstream.RawStreamMsg {
	t.Helper()
	m, err := stream(t, js).GetLastMsgForSubject(t.Context(), subjectOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// change changes the settings of the stream.
func change(t *testing.T, js jetstream.JetStream, how func(*jetstream.StreamConfig)) {
	t.Helper()
	c := stream(t, js).CachedInfo().Config
	how(&c)
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestStore_AServerThatHasForgottenRunsNoNewCommand(t *testing.T) {
	_, js, s := migrated(t)
	id := run(t, s, "before")
	was := stream(t, js).CachedInfo().Config
	for name, restore := range map[string]func() error{
		"the stream is gone": func() error { return nil },
		"the stream is empty": func() error {
			_, err := js.CreateStream(t.Context(), was)
			return err
		},
	} {
		if err := js.DeleteStream(t.Context(), was.Name); err != nil {
			t.Fatal(err)
		}
		if err := restore(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			c := claimOf("before")
			if r, err := s.Claim(t.Context(), c); !errors.Is(err, natsstore.ErrForgotten) {
				t.Errorf("%s: claim got %v and error %v", name, r, err)
			}
		}
		if _, err := s.Lookup(t.Context(), claimOf("another").ID); !errors.Is(err, natsstore.ErrForgotten) || errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup: %v", name, err)
		}
		if err := s.Settle(t.Context(), onlyonce.Hold{ID: claimOf("another").ID, Owner: string(random()), Fence: 1}, completed); !errors.Is(err, natsstore.ErrForgotten) {
			t.Errorf("%s: settle: %v", name, err)
		}
		if _, err := natsstore.Open(t.Context(), js, natsstore.Config{AcceptRisks: unsynced}); err == nil || !strings.Contains(err.Error(), "forgotten: ") {
			t.Errorf("%s: open: %v", name, err)
		}
		migrate(t, js, natsstore.Config{})
		if _, err := s.Lookup(t.Context(), id); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup after Migrate: %v", name, err)
		}
		run(t, open(t, js, natsstore.Config{}), "before")
	}
}

func TestStore_MigratingAgainForgetsNothing(t *testing.T) {
	_, js, s := migrated(t)
	id := run(t, s, "k")
	migrate(t, js, natsstore.Config{})
	if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}

func TestStore_WhenTheStreamIsFullClaimsFailAndNothingIsLost(t *testing.T) {
	_, js, s := migrated(t)
	id := run(t, s, "before")
	limit := func(bytes int64) {
		change(t, js, func(c *jetstream.StreamConfig) { c.MaxBytes = bytes })
	}
	limit(int64(stream(t, js).CachedInfo().State.Bytes))
	if r, err := s.Claim(t.Context(), claimOf("full")); err == nil {
		t.Fatalf("claim got %+v", r)
	}
	if r, err := s.Claim(t.Context(), claimOf("before")); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the repeat got %+v and error %v", r, err)
	}
	limit(-1)
	if _, err := s.Lookup(t.Context(), id); err != nil {
		t.Error(err)
	}
	run(t, s, "full")
}

func TestStore_KillsOfTheServerLoseNothing(t *testing.T) {
	server, js, s := migrated(t)
	settled := make(map[onlyonce.ID]bool)
	for round := range 3 {
		load(t, s, fmt.Sprint(round), settled, server.kill)
		server.restart()
		for id := range settled {
			c := claimOf(id.Key)
			if r, err := s.Claim(t.Context(), c); err != nil || r.State != onlyonce.StateCompleted || r.Owner == c.Owner {
				t.Fatalf("a repeat of %v got %+v, error %v", id, r, err)
			}
		}
	}
	_ = js
}

// load completes commands until a hundred more are settled, then breaks something and
// stops. It adds the IDs of those whose settlement was confirmed.
func load(t *testing.T, s *natsstore.Store, name string, settled map[onlyonce.ID]bool, breaks func()) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	enough := make(chan struct{})
	want := len(settled) + 100
	for g := range 8 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r, err := s.Claim(ctx, claimOf(fmt.Sprint(name, " ", g, " ", i)))
				if err == nil {
					err = s.Settle(ctx, holdOf(r), completed)
				}
				if err != nil {
					return
				}
				mu.Lock()
				settled[r.ID] = true
				if len(settled) == want {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	breaks()
	cancel()
	callers.Wait()
}

func TestStore_ARecordExpiresAnHourBeforeItsMessage(t *testing.T) {
	_, js, s := migrated(t)
	for name, c := range map[string]struct {
		settle *onlyonce.Settlement
		keep   time.Duration
		want   time.Duration // without the hour; -1: never
	}{
		"processing, for good": {nil, 0, -1},
		"processing":           {nil, time.Minute, 11 * time.Minute},
		"completed":            {&completed, time.Minute, time.Hour},
		"for good":             {&onlyonce.Settlement{State: onlyonce.StateUnknown}, time.Minute, -1},
		"released":             {&onlyonce.Settlement{}, time.Minute, 0},
	} {
		claim := claimOf(name)
		claim.Keep = c.keep
		r, err := s.Claim(t.Context(), claim)
		if err == nil && c.settle != nil {
			err = s.Settle(t.Context(), holdOf(r), *c.settle)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := "never"
		if c.want >= 0 {
			want = fmt.Sprintf("%.0fs", (c.want + time.Hour + time.Second).Seconds())
		}
		if ttl := stored(t, js, claim.ID).Header.Get("Nats-TTL"); ttl != want {
			t.Errorf("%s: the message is deleted in %s, want %s", name, ttl, want)
		}
	}
}

func TestStore_AMessageThatTheServerHasDeletedIsNoRecord(t *testing.T) {
	js := connect(t, startNATS(t, ""))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natsstore.DefaultStream, Subjects: []string{"onlyonce.records.>"}, MaxMsgsPerSubject: 1,
		AllowMsgTTL: true, AllowRollup: true, SubjectDeleteMarkerTTL: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	migrate(t, js, natsstore.Config{})
	s := open(t, js, natsstore.Config{AcceptRisks: []string{natsstore.RiskEviction}})
	r, err := s.Claim(t.Context(), claimOf("k"))
	if err != nil {
		t.Fatal(err)
	}
	publish(t, js, &nats.Msg{Subject: subjectOf(r.ID), Data: stored(t, js, r.ID).Data, Header: nats.Header{"Nats-TTL": {"1s"}}})
	for stored(t, js, r.ID).Header.Get("Nats-Marker-Reason") == "" {
		time.Sleep(10 * time.Millisecond)
	}
	if r, err := s.Lookup(t.Context(), r.ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("lookup got %+v, error %v", r, err)
	}
	c := claimOf("k")
	if now, err := s.Claim(t.Context(), c); err != nil || now.Owner != c.Owner || now.Fence <= r.Fence {
		t.Errorf("after the fence %d, a claim got %+v, error %v", r.Fence, now, err)
	}
}

func publish(t *testing.T, js jetstream.JetStream, m *nats.Msg) {
	t.Helper()
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestStore_ARecordThatCanNotBeReadIsOfAnUnknownOutcome(t *testing.T) {
	_, js, s := migrated(t)
	id := run(t, s, "k")
	whole := stored(t, js, id).Data
	edited := func(at int, b byte) []byte {
		d := append([]byte{}, whole...)
		d[at] = b
		return d
	}
	for name, damaged := range map[string][]byte{
		"empty":                      {},
		"cut in the head":            whole[:40],
		"cut behind it":              whole[:70],
		"another version":            edited(0, '2'),
		"no such state":              edited(1, 'X'),
		"a part of negative length":  edited(47, 0xff),
		"a part longer than the all": edited(48, 0x7f),
	} {
		publish(t, js, &nats.Msg{Subject: subjectOf(id), Data: damaged})
		listed := 0
		for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
			if listed++; err != nil || !r.Corrupt {
				t.Errorf("%s: listed %+v, error %v", name, r, err)
			}
		}
		if listed != 1 {
			t.Errorf("%s: listed %d records, want 1", name, listed)
		}
		c := claimOf("k")
		r, err := s.Claim(t.Context(), c)
		if err != nil || r.Owner == c.Owner || r.State != onlyonce.StateUnknown || !r.Corrupt || r.ID != id {
			t.Errorf("%s: a claim got %+v, error %v", name, r, err)
		}
		if err := s.Resolve(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateFailed}); err != nil {
			t.Errorf("%s: resolve as failed: %v", name, err)
		}
		if r, err = s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateFailed || r.Corrupt {
			t.Errorf("%s: it was resolved as %+v, error %v", name, r, err)
		}
		if err := s.Resolve(t.Context(), r, onlyonce.Settlement{}); err != nil {
			t.Errorf("%s: resolve: %v", name, err)
		}
		c = claimOf("k")
		if now, err := s.Claim(t.Context(), c); err != nil || now.Owner != c.Owner || now.Fence <= r.Fence {
			t.Errorf("%s: after that, a claim got %+v, error %v", name, now, err)
		}
	}
}

func TestStore_AFenceIncreasesAlthoughTheClockWasSetBack(t *testing.T) {
	_, js, s := migrated(t)
	for name, settle := range map[string]onlyonce.Settlement{
		"released":    {},
		"expired":     {State: onlyonce.StateCompleted, Keep: time.Millisecond},
		"failed":      {State: onlyonce.StateFailed},
		"of a person": {State: onlyonce.StateUnknown},
	} {
		c := claimOf(name)
		r, err := s.Claim(t.Context(), c)
		if err == nil {
			err = s.Settle(t.Context(), holdOf(r), settle)
		}
		if err != nil {
			t.Fatal(err)
		}
		// What a clock that is an hour ahead would have given.
		ahead := r.Fence + time.Hour.Microseconds()
		m := stored(t, js, c.ID)
		binary.BigEndian.PutUint64(m.Data[19:], uint64(ahead))
		publish(t, js, &nats.Msg{Subject: m.Subject, Data: m.Data})
		next := claimOf(name)
		next.RetryFailed, next.TakeUnknown = true, true
		for { // until it has expired
			now, err := s.Claim(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			if now.Owner == next.Owner {
				if now.Fence <= ahead {
					t.Errorf("%s: after the fence %d came %d", name, ahead, now.Fence)
				}
				break
			}
		}
	}
}

func TestStore_ARecordThatIsTooLargeIsRejectedAndChangesNothing(t *testing.T) {
	_, js, s := migrated(t)
	for name, size := range map[string]int{"for the server": 8 << 20, "for the stream": 100 << 10} {
		r, err := s.Claim(t.Context(), claimOf(name))
		if err != nil {
			t.Fatal(err)
		}
		large := completed
		large.Result.Body = make([]byte, size)
		if name == "for the stream" {
			change(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 64 << 10 })
		}
		if err := s.Settle(t.Context(), holdOf(r), large); !errors.Is(err, onlyonce.ErrTooLarge) {
			t.Errorf("%s: settle: %v", name, err)
		}
		if err := s.Renew(t.Context(), holdOf(r), time.Minute, map[string][]byte{"a": large.Result.Body}); !errors.Is(err, onlyonce.ErrTooLarge) {
			t.Errorf("%s: renew: %v", name, err)
		}
		if now, err := s.Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateProcessing || now.Fence != r.Fence {
			t.Errorf("%s: the record is %+v, error %v", name, now, err)
		}
		if err := s.Settle(t.Context(), holdOf(r), completed); err != nil {
			t.Errorf("%s: settle with less: %v", name, err)
		}
		change(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
	}
}
