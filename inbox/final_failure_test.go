package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestInbox_AFinalFailureGoesToThePoisonQueueAtOnce(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 3})
	h := &handler{err: fmt.Errorf("shipping: %w", onlyonce.Final(errBroken))}
	q.fail = errors.New("disk full")
	if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, q.fail) || !errors.Is(err, errBroken) {
		t.Errorf("acknowledged: %v", err)
	}
	q.fail = nil
	for range 2 {
		r, err := inbox.Handle(t.Context(), in, msg, h.handle)
		if err != nil || r.Poisoned == nil || !strings.Contains(r.Poisoned.Error(), "broken") {
			t.Errorf("%+v, %v", r, err)
		}
	}
	q.want(t, "1: shipping: broken")
	if h.runs != 1 {
		t.Errorf("%d runs", h.runs)
	}
}

// A mortal store settles nothing while its consumer is dead.
type mortal struct {
	*memstore.Store
	dead bool
}

func (s *mortal) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if s.dead {
		return errors.New("dead")
	}
	return s.Store.Settle(ctx, h, st)
}

func TestInbox_AMessageThatFailedForGoodIsNotHandledAgainAlthoughItsConsumerDiedInPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mortal{Store: memstore.New(memstore.Config{})}
		poisoned := 0
		in := inbox.New(store, inbox.Config{Consumer: "shipping", Redelivery: time.Minute, MaxAttempts: 9, Poison: func(_ context.Context, _ inbox.Message, cause error) error {
			if poisoned++; cause.Error() != "broken" {
				t.Errorf("it was poisoned because of %q", cause)
			}
			store.dead = poisoned <= 2
			return nil
		}})
		h := &handler{err: onlyonce.Final(errBroken)}
		for range 2 {
			_, _ = inbox.Handle(t.Context(), in, msg, h.handle) // its result is not read
			store.dead = false
			time.Sleep(time.Minute) // the broker delivers again
			h.err = nil
		}
		for range 2 {
			if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if h.runs != 1 || poisoned != 3 {
			t.Errorf("the handler ran %d times, and the message was poisoned %d times", h.runs, poisoned)
		}
	})
}

func TestInbox_ADeliveryBesidesAFinalFailureIsNotHandled(t *testing.T) {
	store := memstore.New(memstore.Config{})
	second := new(handler)
	var in *inbox.Inbox
	again := false
	in, q := on(store, inbox.Config{MaxAttempts: 9, Observer: func(_ context.Context, e onlyonce.Event) {
		if e.Outcome == onlyonce.OutcomeFailed && !again { // recorded, and not yet poisoned
			again = true
			if r, err := inbox.Handle(t.Context(), in, msg, second.handle); err != nil || r.Poisoned == nil {
				t.Errorf("the second delivery got %+v, %v", r, err)
			}
		}
	}})
	h := &handler{err: onlyonce.Final(errBroken)}
	if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil {
		t.Errorf("%+v, %v", r, err)
	}
	q.want(t, "1: broken")
	if h.runs != 1 || second.runs != 0 || !again {
		t.Errorf("the handler ran %d times, and for the second delivery %d times", h.runs, second.runs)
	}
}

func TestInbox_APanicInPoisonDoesNotHandleAFinalFailureAgain(t *testing.T) {
	fail := true
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: time.Minute, MaxAttempts: 9, Poison: func(context.Context, inbox.Message, error) error {
		if fail {
			panic("no queue")
		}
		return nil
	}})
	h := &handler{err: onlyonce.Final(errBroken)}
	func() {
		defer func() {
			if p := recover(); p != "no queue" {
				t.Errorf("the panic is %v", p)
			}
		}()
		r, err := inbox.Handle(t.Context(), in, msg, h.handle)
		t.Errorf("got %+v, %v", r, err)
	}()
	fail = false
	if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil || r.Poisoned.Error() != "broken" || h.runs != 1 {
		t.Errorf("%+v, %v, %d runs", r, err, h.runs)
	}
}

func TestInbox_APoisonThatEndsItsGoroutineDoesNotHandleAFailureAgain(t *testing.T) {
	for text, c := range map[string]struct {
		err error
		max int
	}{
		"broken": {onlyonce.Final(errBroken), 9},
		"every attempt failed, or ended without a result; the last: broken": {errBroken, 1},
	} {
		exits := true
		in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: time.Minute, MaxAttempts: c.max, Poison: func(context.Context, inbox.Message, error) error {
			if exits {
				runtime.Goexit()
			}
			return nil
		}})
		h := &handler{err: c.err}
		for range 2 {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				r, err := inbox.Handle(t.Context(), in, msg, h.handle)
				t.Errorf("got %+v, %v", r, err)
			}()
			<-ended
		}
		exits = false
		if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil || r.Poisoned.Error() != text || h.runs != 1 {
			t.Errorf("%+v, %v, %d runs", r, err, h.runs)
		}
	}
}

func TestInbox_AFinalFailureWithoutAPoisonQueueIsNeverAcknowledged(t *testing.T) {
	in, _ := newInbox(inbox.Config{})
	h := &handler{err: onlyonce.Final(errBroken)}
	if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, onlyonce.ErrFailed) || h.runs != 1 {
		t.Errorf("%v, %d runs", err, h.runs)
	}
}

func TestInbox_AMessageThatFailedForGoodBeforeThereWasAPoisonQueueGoesToIt(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := &handler{err: onlyonce.Final(errBroken)}
	before, _ := on(store, inbox.Config{})
	if _, err := inbox.Handle(t.Context(), before, msg, h.handle); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	in, q := on(store, inbox.Config{MaxAttempts: 3})
	q.fail = errors.New("full")
	if r, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, q.fail) {
		t.Errorf("nothing has kept it, and it is acknowledged: %+v, %v", r, err)
	}
	q.fail = nil
	if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || !errors.Is(r.Poisoned, onlyonce.ErrFailed) || h.runs != 1 {
		t.Errorf("%+v, %v, %d runs", r, err, h.runs)
	}
	q.want(t, "1: onlyonce: the command failed, and its failure is kept: broken")
}

// A consumer of an earlier version, or a person, may make the failure final just
// before the message is poisoned.
func TestInbox_AMessageThatAnotherFailedForGoodIsPoisonedAllTheSame(t *testing.T) {
	store := memstore.New(memstore.Config{})
	other, _ := on(store, inbox.Config{})
	in, q := on(store, inbox.Config{MaxAttempts: 1, Observer: func(_ context.Context, e onlyonce.Event) {
		if e.Outcome == onlyonce.OutcomeFailed {
			if _, err := inbox.Handle(t.Context(), other, msg, func(context.Context) (string, error) { return "", onlyonce.Final(errBroken) }); !errors.Is(err, errBroken) {
				t.Error(err)
			}
		}
	}})
	if r, err := inbox.Handle(t.Context(), in, msg, (&handler{err: errBroken}).handle); err != nil || r.Poisoned == nil {
		t.Errorf("%+v, %v", r, err)
	}
	q.want(t, "1: broken")
}
