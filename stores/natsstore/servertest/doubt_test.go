package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// A call whose confirmation is lost finds its own message when it looks.
func TestStore_ACallWhoseConfirmationIsLostTakesEffectOnce(t *testing.T) {
	server, direct, observer := migrated(t)
	failed := onlyonce.Settlement{State: onlyonce.StateFailed}
	for name, call := range map[string]func(*testing.T, *natsstore.Store, onlyonce.Record) error{
		"claim": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			c := hazard.Claim("claim")
			c.RetryFailed = true
			now, err := s.Claim(t.Context(), c)
			if now.Owner != c.Owner || now.Attempt != 2 || now.Fence <= r.Fence {
				t.Errorf("the claim got %+v", now)
			}
			return err
		},
		"renew": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			return s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"a": []byte("1")})
		},
		"settle": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
		},
		"release": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{})
		},
		"resolve": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, hazard.Completed)
		},
		"delete": func(t *testing.T, s *natsstore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, onlyonce.Settlement{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), hazard.Claim(name))
			if err == nil && (name == "claim" || name == "resolve" || name == "delete") {
				err = observer.Settle(t.Context(), hazard.Hold(r), failed)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := stored(t, direct, r.ID)
			w := hazard.NewWay(t, "127.0.0.1:"+server.port)
			s := open(t, connect(t, behind(w)), natsstore.Config{Timeout: 5 * time.Minute})

			w.Deafen(fmt.Sprintf("Nats-Expected-Last-Subject-Sequence: %d\r\n", before.Sequence))
			done := make(chan error, 1)
			go func() { done <- call(t, s, r) }()
			var after *jetstream.RawStreamMsg
			for after = before; after.Sequence == before.Sequence; after = stored(t, direct, r.ID) {
				time.Sleep(time.Millisecond)
			}
			w.Cut()
			w.Open()
			if err := <-done; err != nil {
				t.Errorf("the call: %v", err)
			}
			if last := stored(t, direct, r.ID); name != "renew" && last.Sequence != after.Sequence {
				t.Errorf("the call was stored twice, as %d and %d", after.Sequence, last.Sequence)
			}
		})
	}
}

// behind is where clients find a server at the end of a way.
func behind(w *hazard.Way) *natsServer {
	_, port, _ := net.SplitHostPort(w.Address())
	return &natsServer{port: port}
}

// A client's writes to a server that reads nothing block as soon as the buffers between
// them are full.
func TestStore_ACallEndsWithItsContextAlthoughTheServerReadsNothing(t *testing.T) {
	server, _, _ := migrated(t)
	w := hazard.NewWay(t, "127.0.0.1:"+server.port)
	js := connectWith(t, []*natsServer{behind(w)}, nats.FlusherTimeout(time.Hour))
	s := open(t, js, natsstore.Config{})
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	calls := map[string]func() error{
		"settle": func() error { return s.Settle(ctx, hazard.Hold(r), hazard.Completed) },
		"lookup": func() error { _, err := s.Lookup(ctx, r.ID); return err },
		"open":   func() error { _, err := natsstore.Open(ctx, js, natsstore.Config{}); return err },
		"migrate": func() error {
			_, err := natsstore.Migrate(ctx, js, natsstore.Config{})
			return err
		},
	}
	for i := range 32 { // more than the buffers hold
		c := hazard.Claim("large")
		c.ID.Tenant = fmt.Sprintf("%d%1048576d", i, 0)
		calls[fmt.Sprint("claim ", i)] = func() error { _, err := s.Claim(ctx, c); return err }
	}
	type result struct {
		call string
		err  error
	}
	ended := make(chan result, len(calls))
	for name, call := range calls {
		go func() { ended <- result{name, call()} }()
	}
	limit := time.After(time.Minute)
	for range calls {
		select {
		case r := <-ended:
			if !errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", r.call, r.err)
			}
		case <-limit:
			t.Fatal("calls go on although their context has ended")
		}
	}
}
