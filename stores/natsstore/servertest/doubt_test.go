package servertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// A call whose confirmation is lost finds its own message when it looks.
func TestStore_ACallWhoseConfirmationIsLostTakesEffectOnce(t *testing.T) {
	server, direct, observer := migrated(t)
	failed := onlyonce.Settlement{State: onlyonce.StateFailed}
	for name, call := range map[string]func(*testing.T, *natsstore.Store, onlyonce.Record) error{
		"claim": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			c := claimOf("claim")
			c.RetryFailed = true
			now, err := s.Claim(t.Context(), c)
			if now.Owner != c.Owner || now.Attempt != 2 || now.Fence <= r.Fence {
				t.Errorf("the claim got %+v", now)
			}
			return err
		},
		"renew": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			return s.Renew(t.Context(), holdOf(r), time.Hour, map[string][]byte{"a": []byte("1")})
		},
		"settle": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), holdOf(r), completed)
		},
		"release": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), holdOf(r), onlyonce.Settlement{})
		},
		"resolve": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, completed)
		},
		"delete": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, onlyonce.Settlement{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), claimOf(name))
			if err == nil && (name == "claim" || name == "resolve" || name == "delete") {
				err = observer.Settle(t.Context(), holdOf(r), failed)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := stored(t, direct, r.ID)
			w := newWay(t, "127.0.0.1:"+server.port)
			s := open(t, connect(t, &natsServer{port: w.port()}), natsstore.Config{Timeout: 5 * time.Minute})

			w.deafen(fmt.Sprintf("Nats-Expected-Last-Subject-Sequence: %d\r\n", before.Sequence))
			done := make(chan error, 1)
			go func() { done <- call(t, s, r) }()
			var after *jetstream.RawStreamMsg
			for after = before; after.Sequence == before.Sequence; after = stored(t, direct, r.ID) {
				time.Sleep(time.Millisecond)
			}
			w.cut()
			w.open()
			if err := <-done; err != nil {
				t.Errorf("the call: %v", err)
			}
			if last := stored(t, direct, r.ID); name != "renew" && last.Sequence != after.Sequence {
				t.Errorf("the call was stored twice, as %d and %d", after.Sequence, last.Sequence)
			}
		})
	}
}
