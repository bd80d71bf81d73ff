package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestInbox_ADeliveryToAnotherConsumerWhileTheFirstWorksGetsARetryTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := newInbox(inbox.Config{Lease: 20 * time.Second})
		h := new(handler)
		done := make(chan error, 1)
		go func() {
			_, err := inbox.Handle(t.Context(), in, msg, func(ctx context.Context) (string, error) {
				time.Sleep(5 * time.Second)
				return h.handle(ctx)
			})
			done <- err
		}()
		time.Sleep(time.Second)
		_, err := inbox.Handle(t.Context(), in, msg, h.handle)
		var busy *onlyonce.InFlightError
		if !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.RetryAfter > 20*time.Second {
			t.Errorf("%v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		r, err := inbox.Handle(t.Context(), in, msg, h.handle)
		if err != nil || !r.Replayed || r.Value != "run 1" || h.runs != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestInbox_ADeliveryWaitsForTheOtherIfConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := newInbox(inbox.Config{Wait: 10 * time.Second})
		go func() {
			_, _ = inbox.Handle(t.Context(), in, msg, func(context.Context) (string, error) {
				time.Sleep(5 * time.Second)
				return "first", nil
			})
		}()
		time.Sleep(time.Second)
		r, err := inbox.Handle(t.Context(), in, msg, new(handler).handle)
		if err != nil || r.Value != "first" || !r.Replayed {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestInbox_AMessageWhoseConsumerDiedIsHandledWhenTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		in, _ := on(store, inbox.Config{})
		claim := onlyonce.Claim{ID: onlyonce.ID{Tenant: "acme", Operation: "shipping", Key: "1"}, Owner: "dead", Fingerprint: onlyonce.Fingerprint(msg.Payload), Lease: 30 * time.Second}
		if _, err := store.Claim(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		h := new(handler)
		if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, onlyonce.ErrInFlight) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the broker delivers again
		r, err := inbox.Handle(t.Context(), in, msg, h.handle)
		if err != nil || r.Attempt != 2 || h.runs != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
