package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A poisonQueue keeps what it is given.
type poisonQueue struct {
	mu   sync.Mutex
	got  []string // "id: cause"
	fail error
}

func (q *poisonQueue) put(_ context.Context, m inbox.Message, cause error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fail != nil {
		return q.fail
	}
	q.got = append(q.got, m.ID+": "+cause.Error())
	return nil
}

func (q *poisonQueue) want(t *testing.T, want ...string) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if strings.Join(q.got, "|") != strings.Join(want, "|") {
		t.Errorf("the poison queue has %q, want %q", q.got, want)
	}
}

func newInbox(cfg inbox.Config) (*inbox.Inbox, *poisonQueue) {
	return on(memstore.New(memstore.Config{}), cfg)
}

func on(store onlyonce.Store, cfg inbox.Config) (*inbox.Inbox, *poisonQueue) {
	q := new(poisonQueue)
	if cfg.Consumer == "" {
		cfg.Consumer = "shipping"
	}
	cfg.Redelivery = time.Minute
	if cfg.MaxAttempts > 0 {
		cfg.Poison = q.put
	}
	return inbox.New(store, cfg), q
}

var msg = inbox.Message{ID: "1", Tenant: "acme", Payload: []byte("body")}

var errBroken = errors.New("broken")

// A smallStore takes no large results, as some stores do.
type smallStore struct{ onlyonce.Store }

func (s smallStore) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if len(st.Result.Body) > 100 {
		return onlyonce.ErrTooLarge
	}
	return s.Store.Settle(ctx, h, st)
}

func TestHandle_AMessageWhoseResultIsTooLargeForTheStoreIsNotHandledAgain(t *testing.T) {
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

// A handler counts its runs.
type handler struct {
	runs int
	err  error
}

func (h *handler) handle(context.Context) (string, error) {
	h.runs++
	return fmt.Sprint("run ", h.runs), h.err
}

func TestInbox_AMessageDeliveredTwiceIsHandledOnceAndItsResultReplayed(t *testing.T) {
	in, _ := newInbox(inbox.Config{})
	h := new(handler)
	first, err := inbox.Handle(t.Context(), in, msg, h.handle)
	if err != nil || first.Replayed || first.Value != "run 1" || first.Attempt != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := inbox.Handle(t.Context(), in, msg, h.handle)
	if err != nil || !second.Replayed || second.Value != "run 1" || h.runs != 1 {
		t.Errorf("%+v, %v, %d runs", second, err, h.runs)
	}
}

func TestInbox_TenantsAndConsumersAndIDsHandleForThemselves(t *testing.T) {
	store := memstore.New(memstore.Config{})
	one, _ := on(store, inbox.Config{Consumer: "one"})
	two, _ := on(store, inbox.Config{Consumer: "two"})
	h := new(handler)
	for _, in := range []*inbox.Inbox{one, two} {
		for _, m := range []inbox.Message{msg, {ID: "1", Payload: []byte("body")}, {ID: "2", Tenant: "acme", Payload: []byte("body")}} {
			if r, err := inbox.Handle(t.Context(), in, m, h.handle); err != nil || r.Replayed {
				t.Error(r, err)
			}
		}
	}
	if h.runs != 6 {
		t.Errorf("%d runs", h.runs)
	}
}

func TestInbox_AFailureIsHandledAgainAndCounted(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 3})
	h := &handler{err: errors.New("no stock")}
	for range 2 {
		if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, h.err) {
			t.Error(err)
		}
	}
	h.err = nil
	r, err := inbox.Handle(t.Context(), in, msg, h.handle)
	if err != nil || r.Attempt != 3 || r.Value != "run 3" || r.Poisoned != nil {
		t.Errorf("%+v, %v", r, err)
	}
	q.want(t)
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
			_, _ = inbox.Handle(t.Context(), in, msg, h.handle) // nobody reads what it returns
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

func TestInbox_AFailureThatLooksLikeTheInboxsOwnIsTheHandlers(t *testing.T) {
	for _, inner := range []error{onlyonce.ErrFailed, onlyonce.ErrMismatch, onlyonce.ErrUnavailable, &onlyonce.InFlightError{}, onlyonce.ErrLost} {
		in, q := newInbox(inbox.Config{MaxAttempts: 2})
		h := &handler{err: fmt.Errorf("charge: %w", inner)} // of another Guard
		if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, inner) {
			t.Errorf("%v: acknowledged: %v", inner, err)
		}
		q.want(t)
		_, _ = inbox.Handle(t.Context(), in, msg, h.handle)
		if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil || h.runs != 2 {
			t.Errorf("%v: %+v, %v, %d runs", inner, r, err, h.runs)
		}
		q.want(t, "1: "+h.err.Error())
	}
}

func TestInbox_AFailureWithTheTextOfAFinalOneIsNotFinal(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := &handler{err: errors.New("inbox: final, to be poisoned: of another inbox")}
	handle := func(in *inbox.Inbox, runs int) {
		t.Helper()
		if r, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, h.err) || h.runs != runs {
			t.Errorf("%+v, %v, %d runs, want %d", r, err, h.runs, runs)
		}
	}
	without, _ := on(store, inbox.Config{})
	handle(without, 1)
	in, q := on(store, inbox.Config{MaxAttempts: 4})
	handle(in, 2)
	handle(in, 3)
	q.fail = errors.New("the poison queue is away")
	if _, err := inbox.Handle(t.Context(), in, msg, h.handle); !errors.Is(err, q.fail) {
		t.Error(err)
	}
	q.fail = nil
	if r, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil || r.Poisoned == nil || h.runs != 4 {
		t.Errorf("%+v, %v, %d runs", r, err, h.runs)
	}
	if len(q.got) != 1 || !strings.HasPrefix(q.got[0], "1: every attempt failed") {
		t.Errorf("the poison queue has %q", q.got)
	}
}

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

func TestInbox_AMessageWithTheIDOfAnotherIsNotTakenForIt(t *testing.T) {
	other := msg
	other.Payload = []byte("another")
	in, q := newInbox(inbox.Config{MaxAttempts: 3})
	h := new(handler)
	if _, err := inbox.Handle(t.Context(), in, msg, h.handle); err != nil {
		t.Fatal(err)
	}
	if r, err := inbox.Handle(t.Context(), in, other, h.handle); err != nil || !errors.Is(r.Poisoned, onlyonce.ErrMismatch) {
		t.Errorf("%+v, %v", r, err)
	}
	if len(q.got) != 1 || h.runs != 1 {
		t.Error(q.got, h.runs)
	}
	bare, _ := newInbox(inbox.Config{})
	_, _ = inbox.Handle(t.Context(), bare, msg, h.handle)
	if _, err := inbox.Handle(t.Context(), bare, other, h.handle); !errors.Is(err, onlyonce.ErrMismatch) {
		t.Error(err)
	}
}

func TestInbox_AMessageWithoutAnIDIsRejected(t *testing.T) {
	in, q := newInbox(inbox.Config{MaxAttempts: 3})
	h := new(handler)
	if r, err := inbox.Handle(t.Context(), in, inbox.Message{Payload: []byte("x")}, h.handle); err != nil || r.Poisoned == nil {
		t.Errorf("%+v, %v", r, err)
	}
	if len(q.got) != 1 || h.runs != 0 {
		t.Error(q.got, h.runs)
	}
	bare, _ := newInbox(inbox.Config{})
	if _, err := inbox.Handle(t.Context(), bare, inbox.Message{ID: strings.Repeat("x", 2000)}, h.handle); err == nil {
		t.Error("acknowledged")
	}
}

func TestInbox_NonsenseInAConfigIsRejectedWithWhatToWrite(t *testing.T) {
	ok := inbox.Config{Consumer: "c", Redelivery: time.Minute}
	for want, change := range map[string]func(*inbox.Config){
		"Consumer is empty":        func(c *inbox.Config) { c.Consumer = "" },
		"Redelivery is not set":    func(c *inbox.Config) { c.Redelivery = 0 },
		"Lease is 1m0s":            func(c *inbox.Config) { c.Lease = time.Minute },
		"Keep is 1m0s":             func(c *inbox.Config) { c.Keep = time.Minute },
		"MaxAttempts is 3":         func(c *inbox.Config) { c.MaxAttempts = 3 },
		"Config.Lease is negative": func(c *inbox.Config) { c.Lease = -1 },
	} {
		cfg := ok
		change(&cfg)
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, want) {
					t.Errorf("panicked with %q, want %q", p, want)
				}
			}()
			inbox.New(memstore.New(memstore.Config{}), cfg)
		}()
	}
	inbox.New(memstore.New(memstore.Config{}), ok)
}

func TestInbox_TheRecordKeepsTheTraceContextOfTheDeliveryThatWasHandled(t *testing.T) {
	const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-11111111111111111111111111111111-2222222222222222-01"
	type traceKey struct{}
	var kept []string
	in, _ := newInbox(inbox.Config{
		Traceparent: func(ctx context.Context) string { return ctx.Value(traceKey{}).(string) },
		Observer:    func(_ context.Context, e onlyonce.Event) { kept = append(kept, e.Record.Result.Traceparent) },
	})
	for _, text := range []string{first, second} {
		ctx := context.WithValue(t.Context(), traceKey{}, text)
		if _, err := inbox.Handle(ctx, in, msg, func(context.Context) (string, error) { return "done", nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(kept) != 2 || kept[0] != first || kept[1] != first {
		t.Errorf("the events of the two deliveries have the trace contexts %q, want %s in both", kept, first)
	}
}
