package watermillonce_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/watermillonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A broker records the messages that it gets.
type broker struct {
	mu    sync.Mutex
	got   map[string]*message.Message // by topic and payload
	fail  map[string]error            // by payload
	away  error
	hangs bool
	now   int
	most  int // how many were published at the same time

	goesOn chan struct{} // closed when the calls that hang continue
}

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	b.mu.Lock()
	b.now++
	b.most = max(b.most, b.now)
	hangs := b.hangs
	b.mu.Unlock()
	if time.Sleep(time.Millisecond); hangs {
		<-b.goesOn // nil: forever
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now--
	for _, m := range messages {
		if b.away != nil {
			return b.away
		}
		if err := b.fail[string(m.Payload)]; err != nil {
			return err
		}
		if b.got == nil {
			b.got = make(map[string]*message.Message)
		}
		b.got[topic+" "+string(m.Payload)] = m
	}
	return nil
}

func (b *broker) Close() error { return nil }

func made(t *testing.T, payloads ...string) (list []outbox.Message) {
	t.Helper()
	for _, p := range payloads {
		m, err := outbox.Prepare(t.Context(), outbox.Message{Topic: "topic", Tenant: "acme", Payload: []byte(p)})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

func TestWatermill_AMessageIsPublishedWithItsIDAndHeaders(t *testing.T) {
	b := new(broker)
	list := made(t, "a")
	if errs := watermillonce.NewPublisher(b, watermillonce.Config{}).Publish(t.Context(), list); errs != nil {
		t.Fatal(errs)
	}
	m := b.got["topic a"]
	if m == nil || m.UUID != list[0].ID || m.Metadata.Get(outbox.HeaderID) != list[0].ID || m.Metadata.Get(outbox.HeaderTenant) != "acme" {
		t.Errorf("published %+v", m)
	}
	elsewhere := watermillonce.NewPublisher(b, watermillonce.Config{Topic: func(m outbox.Message) string { return m.Tenant }})
	if errs := elsewhere.Publish(t.Context(), list); errs != nil || b.got["acme a"] == nil {
		t.Errorf("%v, published %+v", errs, b.got)
	}
}

func TestWatermill_ManyMessagesArePublishedAtATimeButNoMoreThanConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(broker)
		var payloads []string
		for i := range 100 {
			payloads = append(payloads, fmt.Sprint(i))
		}
		if errs := watermillonce.NewPublisher(b, watermillonce.Config{InFlight: 10}).Publish(t.Context(), made(t, payloads...)); errs != nil {
			t.Fatal(errs)
		}
		if b.most != 10 || len(b.got) != 100 {
			t.Errorf("%d at a time, %d in all", b.most, len(b.got))
		}
	})
}

func TestWatermill_AFailureIsTheMessagesOwnOnlyWhileTheBrokerTakesOthers(t *testing.T) {
	bad := errors.New("no")
	b := &broker{fail: map[string]error{"bad": bad}}
	p := watermillonce.NewPublisher(b, watermillonce.Config{})
	away := func(want bool, payloads ...string) {
		t.Helper()
		errs := p.Publish(t.Context(), made(t, payloads...))
		for i, payload := range payloads {
			if payload == "bad" && (!errors.Is(errs[i], bad) || errors.Is(errs[i], outbox.ErrUnavailable) != want) {
				t.Errorf("got %v, unavailable %v", errs[i], want)
			}
		}
	}
	away(true, "bad") // nothing was taken yet
	away(false, "good", "bad")
	away(false, "bad") // the first that fails alone
	away(true, "bad")
	away(true, "bad", "bad")
	if errs := p.Publish(t.Context(), made(t, "good")); errs != nil {
		t.Fatal(errs)
	}
	away(false, "bad")
}

// A topic may be away while the broker takes the messages of others: its leader, its
// queue or the permission for it is missing.
func TestWatermill_ATopicOfWhichTheBrokerTakesNothingHasNoRoute(t *testing.T) {
	b := &broker{fail: map[string]error{"bad": errors.New("no leader")}}
	p := watermillonce.NewPublisher(b, watermillonce.Config{})
	publish := func(topicOfBad string, want error, payloads ...string) {
		t.Helper()
		list := made(t, payloads...)
		for i := range list {
			if payloads[i] == "bad" {
				list[i].Topic = topicOfBad
			}
		}
		for i, err := range p.Publish(t.Context(), list) {
			if payloads[i] == "bad" && (err == nil || !errors.Is(err, want)) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	}
	for range 3 {
		publish("away", outbox.ErrNoRoute, "good", "bad")
	}
	publish("away", outbox.ErrUnavailable, "bad") // the broker took nothing
}

func TestWatermill_AMessageThatTheBrokerHadNoTimeForIsNotAtFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{hangs: true, goesOn: make(chan struct{})}
		never := func(error) bool { t.Error("the caller was asked"); return true }
		for name, cfg := range map[string]watermillonce.Config{
			"by default":           {InFlight: 1},
			"whatever is rejected": {InFlight: 1, Rejected: never},
		} {
			p := watermillonce.NewPublisher(slow{b}, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			errs := p.Publish(ctx, made(t, "fast", "slow", "not sent"))
			cancel()
			if errs[0] != nil || !errors.Is(errs[1], outbox.ErrNoRoute) || !errors.Is(errs[2], outbox.ErrUnavailable) {
				t.Errorf("%s: got %v", name, errs)
			}
		}
		close(b.goesOn)
	})
}

// A slow broker takes only "fast" in time.
type slow struct{ *broker }

func (b slow) Publish(_ string, messages ...*message.Message) error {
	if string(messages[0].Payload) != "fast" {
		<-b.goesOn
	}
	return nil
}

func TestWatermill_TheCallerCanClassifyTheBrokersErrors(t *testing.T) {
	large := errors.New("too large")
	b := &broker{fail: map[string]error{"large": large, "other": errors.New("other")}}
	p := watermillonce.NewPublisher(b, watermillonce.Config{Rejected: func(err error) bool { return errors.Is(err, large) }})
	errs := p.Publish(t.Context(), made(t, "large", "other", "good"))
	if !errors.Is(errs[0], large) || errors.Is(errs[0], outbox.ErrNoRoute) || !errors.Is(errs[1], outbox.ErrNoRoute) || errs[2] != nil {
		t.Errorf("got %v", errs)
	}
	if errs := p.Publish(t.Context(), made(t, "other")); !errors.Is(errs[0], outbox.ErrUnavailable) {
		t.Errorf("alone: %v", errs)
	}
}

func TestWatermill_APublisherThatHangsIsNotWaitedForLongerThanTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	errs := watermillonce.NewPublisher(&broker{hangs: true}, watermillonce.Config{InFlight: 1}).Publish(ctx, made(t, "a", "b"))
	for _, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, outbox.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
}

func TestWatermill_APublisherThatHangsIsNotCalledMoreOftenThanConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{hangs: true, goesOn: make(chan struct{})}
		p := watermillonce.NewPublisher(b, watermillonce.Config{InFlight: 2})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for i, err := range p.Publish(ctx, made(t, "a", "b", "c")) {
				if !errors.Is(err, outbox.ErrUnavailable) {
					t.Errorf("message %d: got %v", i, err)
				}
			}
			cancel()
		}
		b.mu.Lock()
		if b.most != 2 {
			t.Errorf("%d calls were under way at a time", b.most)
		}
		b.hangs = false
		b.mu.Unlock()
		close(b.goesOn)
		errs := p.Publish(t.Context(), made(t, "d", "e", "f"))
		b.mu.Lock()
		defer b.mu.Unlock()
		if errs != nil || len(b.got) != 5 {
			t.Errorf("got %v, and the broker %d messages", errs, len(b.got))
		}
	})
}

func newInbox(poisoned *[]string) *inbox.Inbox {
	return inbox.New(memstore.New(memstore.Config{}), inbox.Config{
		Consumer: "test", Redelivery: time.Minute, MaxAttempts: 2,
		Poison: func(_ context.Context, m inbox.Message, cause error) error {
			*poisoned = append(*poisoned, m.ID+": "+cause.Error())
			return nil
		},
	})
}

func TestWatermill_AMessageDeliveredAgainProducesTheSameMessagesAgain(t *testing.T) {
	runs := 0
	h := watermillonce.Middleware(newInbox(new([]string)))(func(msg *message.Message) ([]*message.Message, error) {
		runs++
		out := message.NewMessage(fmt.Sprint("uuid ", runs), []byte{0xff, byte(runs)})
		out.Metadata.Set("of", string(msg.Payload))
		return []*message.Message{out}, nil
	})
	for range 3 {
		got, err := h(message.NewMessage("1", []byte("payload")))
		if err != nil || len(got) != 1 || got[0].UUID != "uuid 1" || string(got[0].Payload) != "\xff\x01" || got[0].Metadata.Get("of") != "payload" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

func TestWatermill_MessagesProducedWithTheMetadataOfAnotherAreHandledEach(t *testing.T) {
	msg := message.NewMessage("order", nil)
	msg.Metadata.Set(outbox.HeaderID, "order")
	msg.Metadata.Set(outbox.HeaderTenant, "acme")
	splits := watermillonce.Middleware(inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "orders", Redelivery: time.Minute}))(func(msg *message.Message) ([]*message.Message, error) {
		list := []*message.Message{msg.Copy(), message.NewMessage("parcel 1", nil), message.NewMessage("parcel 2", nil)}
		for _, m := range list[1:] {
			m.Metadata = maps.Clone(msg.Metadata)
		}
		return list, nil
	})
	var handled []string
	ships := watermillonce.Middleware(inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "parcels", Redelivery: time.Minute}))(func(msg *message.Message) ([]*message.Message, error) {
		handled = append(handled, msg.Metadata.Get(outbox.HeaderID)+" of "+msg.Metadata.Get(outbox.HeaderTenant))
		return nil, nil
	})
	for range 2 {
		list, err := splits(msg)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if _, err := ships(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"order of acme", "parcel 1 of acme", "parcel 2 of acme"}; !slices.Equal(handled, want) {
		t.Errorf("handled %q, want %q", handled, want)
	}
}

func TestWatermill_AMessageThatIsNotTextIsProducedAgainAsItWas(t *testing.T) {
	uuid, metadata := "\xff\xfe", message.Metadata{"plain": "a", "\xff": "\x00\xff", "\xfe": "", "escaped": "\x00base64:AA=="}
	h := watermillonce.Middleware(newInbox(new([]string)))(func(*message.Message) ([]*message.Message, error) {
		out := message.NewMessage(uuid, nil)
		out.Metadata = metadata
		return []*message.Message{out, message.NewMessage("none", nil)}, nil
	})
	for i := range 2 {
		got, err := h(message.NewMessage("1", nil))
		if err != nil || len(got) != 2 || got[0].UUID != uuid || !maps.Equal(got[0].Metadata, metadata) || len(got[1].Metadata) > 0 {
			t.Errorf("delivery %d produced %+v, error %v", i, got, err)
		}
	}
}

// away is a store that can't be reached.
type away struct{ onlyonce.Store }

func (away) Claim(context.Context, onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{}, onlyonce.ErrUnavailable
}

func TestWatermill_WhileTheStoreIsAwayAMessageIsHeldAndRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := watermillonce.Middleware(inbox.New(away{memstore.New(memstore.Config{})}, inbox.Config{Consumer: "test", Redelivery: time.Minute}))
		handler := h(func(*message.Message) ([]*message.Message, error) {
			t.Error("it was handled")
			return nil, nil
		})
		began := time.Now()
		if _, err := handler(message.NewMessage("1", nil)); !errors.Is(err, onlyonce.ErrUnavailable) || time.Since(began) < time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		msg := message.NewMessage("1", nil)
		msg.SetContext(ctx)
		if _, err := handler(msg); err == nil || time.Since(began) >= time.Second {
			t.Errorf("when the subscriber ends: %v after %v", err, time.Since(began))
		}
	})
}

func TestWatermill_AMessageIsKnownByItsIDInTheOutboxAndItsTenant(t *testing.T) {
	runs := 0
	h := watermillonce.Middleware(newInbox(new([]string)))(func(*message.Message) ([]*message.Message, error) {
		runs++
		return nil, nil
	})
	for _, m := range []struct{ uuid, id, tenant string }{{"a", "1", ""}, {"b", "1", ""}, {"c", "1", "acme"}, {"1", "", ""}} {
		msg := message.NewMessage(m.uuid, nil)
		msg.Metadata.Set(outbox.HeaderID, m.id)
		msg.Metadata.Set(outbox.HeaderTenant, m.tenant)
		if _, err := h(msg); err != nil {
			t.Error(err)
		}
	}
	if runs != 2 {
		t.Errorf("%d runs", runs)
	}
}

func TestWatermill_AFailingMessageIsRejectedUntilItGoesToThePoisonQueue(t *testing.T) {
	var poisoned []string
	h := watermillonce.Middleware(newInbox(&poisoned))(func(*message.Message) ([]*message.Message, error) {
		return nil, errors.New("no stock")
	})
	for i := range 4 {
		got, err := h(message.NewMessage("1", nil))
		if (err != nil) != (i == 0) || got != nil {
			t.Errorf("delivery %d: %v, %v", i, got, err)
		}
	}
	if fmt.Sprint(poisoned) != "[1: no stock]" {
		t.Errorf("the poison queue has %q", poisoned)
	}
}

func TestWatermill_AHandlerThatReturnsANilMessageHasFailed(t *testing.T) {
	var poisoned []string
	h := watermillonce.Middleware(newInbox(&poisoned))(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("2", nil), nil}, nil
	})
	if _, err := h(message.NewMessage("1", nil)); err == nil {
		t.Error("the first delivery was handled")
	}
	if _, err := h(message.NewMessage("1", nil)); err != nil || fmt.Sprint(poisoned) != "[1: watermillonce: the handler returned a nil message]" {
		t.Errorf("%v, and the poison queue has %q", err, poisoned)
	}
}

func TestWatermill_AHandlerThatChangesItsPayloadChangesNoOthers(t *testing.T) {
	var poisoned []string
	in := newInbox(&poisoned)
	h := watermillonce.Middleware(in)(func(msg *message.Message) ([]*message.Message, error) {
		clear(msg.Payload)
		return nil, errors.New("no stock")
	})
	msg := message.NewMessage("1", []byte("payload"))
	for range 2 {
		_, _ = h(msg)
	}
	if string(msg.Payload) != "payload" || fmt.Sprint(poisoned) != "[1: no stock]" {
		t.Errorf("the payload is %q, and the poison queue has %q", msg.Payload, poisoned)
	}
}

func TestWatermill_WhatAnotherConsumerWorksOnIsHeldAndRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		h := watermillonce.Middleware(newInbox(new([]string)))(func(*message.Message) ([]*message.Message, error) {
			runs++
			time.Sleep(5 * time.Second)
			return nil, nil
		})
		go func() { _, _ = h(message.NewMessage("1", nil)) }()
		time.Sleep(time.Millisecond)
		began := time.Now()
		if _, err := h(message.NewMessage("1", nil)); err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(10 * time.Second)
		if _, err := h(message.NewMessage("1", nil)); err != nil || runs != 1 {
			t.Errorf("%v, %d runs", err, runs)
		}
	})
}
