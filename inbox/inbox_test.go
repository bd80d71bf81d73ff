package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A poisonQueue keeps the messages that it gets.
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
