package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A smallStore takes no large results, as some stores do.
type smallStore struct{ onlyonce.Store }

func (s smallStore) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if len(st.Result.Body) > 100 {
		return onlyonce.ErrTooLarge
	}
	return s.Store.Settle(ctx, h, st)
}

func TestInbox_AMessageWhoseResultIsTooLargeForTheStoreIsNotHandledAgain(t *testing.T) {
	in, poisoned := on(smallStore{memstore.New(memstore.Config{})}, inbox.Config{MaxAttempts: 3})
	runs := 0
	for i := range 5 {
		r, err := inbox.Handle(t.Context(), in, msg, func(context.Context) (string, error) {
			runs++
			return strings.Repeat("x", 1000), nil
		})
		if err != nil || (i > 0) != errors.Is(r.Poisoned, onlyonce.ErrCorrupt) {
			t.Errorf("delivery %d: %+v, %v", i+1, r, err)
		}
	}
	if runs != 1 || len(poisoned.got) != 4 {
		t.Errorf("handled %d times and poisoned %d times, want 1 and 4", runs, len(poisoned.got))
	}
}

func TestInbox_AMessageThatKeepsFailingGoesToThePoisonQueueOnce(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 3})
	h := &handler{err: errors.New("no stock")}
	for i := range 2 {
		if _, err := inbox.Handle(t.Context(), in, msg, h.handle); err == nil {
			t.Errorf("attempt %d was acknowledged", i+1)
		}
	}
	for range 3 {
		r, err := inbox.Handle(t.Context(), in, msg, h.handle)
		if err != nil || r.Poisoned == nil || !strings.Contains(r.Poisoned.Error(), "no stock") {
			t.Errorf("%+v, %v", r, err)
		}
	}
	q.want(t, "1: no stock")
	if h.runs != 3 {
		t.Errorf("%d runs", h.runs)
	}
}

func TestInbox_APoisonQueueThatFailsLosesNoMessage(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 1})
	h := &handler{err: errors.New("no stock")}
	q.fail = errors.New("disk full")
	for range 3 {
		if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, q.fail) {
			t.Errorf("acknowledged: %v", err)
		}
	}
	if h.runs != 1 {
		t.Errorf("the handler ran %d times", h.runs)
	}
	q.fail = nil
	if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil {
		t.Errorf("%+v, %v", r, err)
	}
	q.want(t, "1: every attempt failed, or ended without a result; the last: no stock")
}

// A hollow error panics as a nil pointer does whose method Error reads a field.
type hollow struct{}

func (hollow) Error() string { panic("there is no text") }

func TestInbox_AMessageWhoseErrorPanicsInATransactionCountsAndGoesToThePoisonQueue(t *testing.T) {
	for name, failure := range map[string]error{"Error": hollow{}, "Unwrap": (*net.OpError)(nil)} {
		t.Run(name, func(t *testing.T) {
			q := new(poisonQueue)
			in := inbox.NewTx(adaptertest.NewStore(), inbox.Config{Consumer: "shipping", Redelivery: time.Minute, MaxAttempts: 2, Poison: q.put, Observer: onlyonce.DiscardEvents})
			fail := func(context.Context, adaptertest.Tx) (int, error) { return 0, failure }
			var panicked any
			for range 2 {
				func() {
					defer func() {
						if panicked = recover(); panicked == nil {
							t.Error("there was no panic")
						}
					}()
					_, _ = inbox.HandleTx(t.Context(), in, msg, fail)
				}()
			}
			if r, err := inbox.HandleTx(t.Context(), in, msg, fail); err != nil || r.Poisoned == nil {
				t.Fatalf("%+v, %v", r, err)
			}
			q.want(t, fmt.Sprintf("1: panic: %v", panicked))
		})
	}
}

func TestInbox_AMessageWhoseHandlerPanicsCountsAndGoesToThePoisonQueue(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 2})
	for range 2 {
		func() {
			defer func() {
				if p := recover(); p != "bug" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = inbox.Handle(t.Context(), in, msg, func(context.Context) (int, error) { panic("bug") })
		}()
	}
	r, err := inbox.Handle(t.Context(), in, msg, func(context.Context) (int, error) { panic("not to run") })
	if err != nil || r.Poisoned == nil {
		t.Errorf("%+v, %v", r, err)
	}
	q.want(t, "1: every attempt failed, or ended without a result; the last: panic: bug")
}

func TestInbox_AMessageWhoseDeliveryEndsBeforeItIsPoisonedIsNotAcknowledged(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 1})
	h := &handler{err: errors.New("no stock")}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := inbox.Handle(ctx, in, msg, func(ctx context.Context) (string, error) {
		cancel() // the subscriber closes
		return h.handle(ctx)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	q.want(t)
	if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil || h.runs != 1 {
		t.Errorf("%+v, %v, %d runs", r, err, h.runs)
	}
	q.want(t, "1: every attempt failed, or ended without a result; the last: no stock")
}

func TestInbox_AHandlerThatChangesThePayloadIsPoisonedAllTheSame(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 1})
	m := msg
	m.Payload = []byte("body")
	r, err := inbox.Handle(t.Context(), in, m, func(context.Context) (string, error) {
		clear(m.Payload)
		return "", errors.New("no stock")
	})
	if err != nil || r.Poisoned == nil {
		t.Errorf("%+v, %v", r, err)
	}
	q.want(t, "1: no stock")
}

func TestInbox_AHandledMessageWhoseResultCanNotBeDecodedGoesToThePoisonQueue(t *testing.T) {
	store := memstore.New(memstore.Config{})
	in, _ := on(store, inbox.Config{})
	if _, err := inbox.Handle(t.Context(), in, msg, new(handler).handle); err != nil { // a string
		t.Fatal(err)
	}
	handle := func(context.Context) (int, error) {
		t.Error("it was handled again")
		return 0, nil
	}
	if r, err := inbox.Handle(t.Context(), in, msg, handle); !errors.Is(err, onlyonce.ErrCorrupt) {
		t.Errorf("without a poison queue: %+v, %v", r, err)
	}
	in, q := on(store, inbox.Config{MaxAttempts: 2})
	for range 2 {
		if r, err := inbox.Handle(t.Context(), in, msg, handle); err != nil || !errors.Is(r.Poisoned, onlyonce.ErrCorrupt) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.got) != 2 {
		t.Errorf("the poison queue has %q", q.got)
	}
}
