package lambdaonce_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// shipping are the settings of the inboxes here.
var shipping = inbox.Config{Consumer: "shipping", Redelivery: 3 * time.Minute, Observer: onlyonce.DiscardEvents}

func newInbox() *inbox.Inbox { return inbox.New(memstore.New(memstore.Config{}), shipping) }

// partly reports failures, and logs none.
var partly = lambdaonce.SQSConfig{ReportBatchItemFailures: true, Failed: func(context.Context, events.SQSMessage, error) {}}

// A batch is an event with one message for each text, which is "group id", and the name of its queue.
func batch(queue string, texts ...string) (e events.SQSEvent) {
	for _, text := range texts {
		group, id, _ := strings.Cut(text, " ")
		e.Records = append(e.Records, events.SQSMessage{
			MessageId: id, Body: text, EventSourceARN: "arn:aws:sqs:eu-central-1:111122223333:" + queue, Attributes: map[string]string{"MessageGroupId": group},
		})
	}
	return e
}

// A consumer notes the messages that it handles, and fails those for which there is an error.
type consumer struct {
	handled []string
	fails   map[string]error
}

func (c *consumer) handle(_ context.Context, m events.SQSMessage) error {
	if err := c.fails[m.MessageId]; err != nil {
		return err
	}
	c.handled = append(c.handled, m.MessageId)
	return nil
}

// wantFailures fails unless the function reports these messages as failed.
func wantFailures(t *testing.T, f lambdaonce.SQSFunc, e events.SQSEvent, want ...string) {
	t.Helper()
	response, err := f(t.Context(), e)
	if got := failures(response); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func failures(response events.SQSEventResponse) (ids []string) {
	for _, f := range response.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

func wantHandled(t *testing.T, c *consumer, want ...string) {
	t.Helper()
	if !slices.Equal(c.handled, want) {
		t.Errorf("handled %v, want %v", c.handled, want)
	}
}

var errAway = errors.New("the carrier is away")

func TestSQSHandler_AnEventThatIsReplayedFiveTimesHasOneEffect(t *testing.T) {
	var c consumer
	h := lambda.NewHandler(lambdaonce.SQSHandler(newInbox(), c.handle, partly))
	for range 5 {
		if got, err := h.Invoke(t.Context(), recorded(t, "sqs")); string(got) != `{"batchItemFailures":null}` || err != nil {
			t.Errorf("got %s, %v", got, err)
		}
	}
	wantHandled(t, &c, "2e1424d4-f796-459a-8184-9c92662be6da", "059f36b4-87a3-44ab-83d2-661975830a7d")
}

func TestSQSHandler_OnlyWhatHasFailedIsDeliveredAgain(t *testing.T) {
	c := consumer{fails: map[string]error{"2": errAway}}
	f := lambdaonce.SQSHandler(newInbox(), c.handle, partly)
	e := batch("orders", "g 1", "g 2", "g 3")
	wantFailures(t, f, e, "2")
	wantHandled(t, &c, "1", "3")
	c.fails = nil
	wantFailures(t, f, e)
	wantHandled(t, &c, "1", "3", "2")
}

func TestSQSHandler_WithoutReportsTheWholeBatchIsDeliveredAgain(t *testing.T) {
	c := consumer{fails: map[string]error{"2": errAway}}
	f := lambdaonce.SQSHandler(newInbox(), c.handle, lambdaonce.SQSConfig{Failed: partly.Failed})
	e := batch("orders", "g 1", "g 2", "g 3")
	if response, err := f(t.Context(), e); err == nil || err.Error() != "lambdaonce: 1 of 3 messages are to be delivered again" || response.BatchItemFailures != nil {
		t.Errorf("got %+v, %v", response, err)
	}
	c.fails = nil
	wantFailures(t, f, e)
	wantHandled(t, &c, "1", "3", "2")
}

func TestSQSHandler_TheOrderOfAGroupIsPreserved(t *testing.T) {
	c := consumer{fails: map[string]error{"a1": errAway}}
	f := lambdaonce.SQSHandler(newInbox(), c.handle, partly)
	e := batch("orders.fifo", "a a1", "b b1", "a a2", "b b2", "a a3")
	wantFailures(t, f, e, "a1", "a2", "a3")
	wantHandled(t, &c, "b1", "b2")
	c.fails = nil
	wantFailures(t, f, batch("orders.fifo", "a a1", "a a2", "a a3"))
	wantHandled(t, &c, "b1", "b2", "a1", "a2", "a3")
}

func TestSQSHandler_WhatAnotherConsumerIsWorkingOnIsDeliveredAgain(t *testing.T) {
	in := newInbox()
	began, goOn := make(chan struct{}), make(chan struct{})
	slow := lambdaonce.SQSHandler(in, func(context.Context, events.SQSMessage) error {
		close(began)
		<-goOn
		return nil
	}, partly)
	ended := make(chan error)
	go func() {
		response, err := slow(context.Background(), batch("orders.fifo", "a a1"))
		if len(response.BatchItemFailures) > 0 {
			err = errAway
		}
		ended <- err
	}()
	<-began
	var c consumer
	f := lambdaonce.SQSHandler(in, c.handle, partly)
	e := batch("orders.fifo", "a a1", "a a2", "b b1")
	wantFailures(t, f, e, "a1", "a2")
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantFailures(t, f, e)
	wantHandled(t, &c, "b1", "a2")
}

func TestSQSHandler_AMessageForWhichNoTimeIsLeftIsDeliveredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		var handled []string
		f := lambdaonce.SQSHandler(inbox.New(store, shipping), func(ctx context.Context, m events.SQSMessage) error {
			began := time.Now()
			if <-ctx.Done(); time.Since(began) != 29*time.Second {
				t.Errorf("the context ended after %v", time.Since(began))
			}
			if handled = append(handled, m.MessageId); m.MessageId == "late" {
				return ctx.Err()
			}
			return nil
		}, partly)
		for _, c := range []struct{ failed, first string }{{"[2]", "1"}, {"[late 2]", "late"}} {
			invocation, kill := context.WithTimeout(t.Context(), 30*time.Second)
			if response, err := f(invocation, batch("orders", "g "+c.first, "g 2")); fmt.Sprint(failures(response)) != c.failed || err != nil || invocation.Err() != nil {
				t.Errorf("got %+v, %v", response, err)
			}
			kill()
		}
		if fmt.Sprint(handled) != "[1 late]" {
			t.Errorf("handled %v", handled)
		}
		wantRecord(t, store, onlyonce.ID{Operation: "shipping", Key: "1"}, onlyonce.StateCompleted)
		wantRecord(t, store, onlyonce.ID{Operation: "shipping", Key: "late"}, onlyonce.StateUnknown)
	})
}

func TestSQSHandler_WhichMessagesAreTheSame(t *testing.T) {
	text := func(s string) events.SQSMessageAttribute {
		return events.SQSMessageAttribute{StringValue: &s, DataType: "String"}
	}
	sent := func(id string, attributes map[string]events.SQSMessageAttribute) events.SQSMessage {
		return events.SQSMessage{MessageId: id, Body: "order 7", MessageAttributes: attributes}
	}
	named := map[string]events.SQSMessageAttribute{outbox.HeaderID: text("m"), outbox.HeaderTenant: text("acme"), "blob": {BinaryValue: []byte("x"), DataType: "Binary"}}
	for name, c := range map[string]struct {
		cfg           lambdaonce.SQSConfig
		first, second events.SQSMessage
		id            onlyonce.ID
		runs          int32
	}{
		"by default, those with a MessageId":     {partly, sent("1", nil), sent("2", nil), onlyonce.ID{Key: "1"}, 2},
		"those of an outbox with its message ID": {partly, sent("1", named), sent("2", named), onlyonce.ID{Tenant: "acme", Key: "m"}, 1},
		"those with an ID of one's own": {lambdaonce.SQSConfig{
			ReportBatchItemFailures: true,
			ID:                      func(m events.SQSMessage) string { return m.Body },
			Tenant:                  func(m events.SQSMessage) string { return "of " + m.Body },
		}, sent("1", named), sent("2", nil), onlyonce.ID{Tenant: "of order 7", Key: "order 7"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int32
			store := memstore.New(memstore.Config{})
			f := lambdaonce.SQSHandler(inbox.New(store, shipping), func(context.Context, events.SQSMessage) error {
				runs.Add(1)
				return nil
			}, c.cfg)
			wantFailures(t, f, events.SQSEvent{Records: []events.SQSMessage{c.first, c.second}})
			wantRuns(t, &runs, c.runs)
			c.id.Operation = "shipping"
			wantRecord(t, store, c.id, onlyonce.StateCompleted)
		})
	}
}

func TestSQSHandler_AnotherMessageWithTheSameIDIsNotHandled(t *testing.T) {
	var c consumer
	var reasons []error
	cfg := partly
	cfg.Failed = func(_ context.Context, m events.SQSMessage, err error) { reasons = append(reasons, err) }
	f := lambdaonce.SQSHandler(newInbox(), c.handle, cfg)
	wantFailures(t, f, batch("orders", "g 1", "h 1"), "1")
	wantHandled(t, &c, "1")
	if len(reasons) != 1 || !errors.Is(reasons[0], onlyonce.ErrMismatch) {
		t.Errorf("the reasons are %v", reasons)
	}
}

func TestSQSHandler_APoisonedMessageIsFinished(t *testing.T) {
	var poisoned []string
	cfg := shipping
	cfg.MaxAttempts = 2
	cfg.Poison = func(_ context.Context, m inbox.Message, _ error) error {
		poisoned = append(poisoned, m.ID)
		return nil
	}
	c := consumer{fails: map[string]error{"a1": errAway}}
	f := lambdaonce.SQSHandler(inbox.New(memstore.New(memstore.Config{}), cfg), c.handle, partly)
	e := batch("orders.fifo", "a a1", "a a2")
	wantFailures(t, f, e, "a1", "a2")
	wantFailures(t, f, e)
	wantFailures(t, f, e)
	wantHandled(t, &c, "a2")
	if !reflect.DeepEqual(poisoned, []string{"a1"}) {
		t.Errorf("poisoned %v", poisoned)
	}
}

func TestSQSHandler_APanicContinuesAndTheOthersAreNotHandledTwice(t *testing.T) {
	c, panics := consumer{}, true
	f := lambdaonce.SQSHandler(newInbox(), func(ctx context.Context, m events.SQSMessage) error {
		if m.MessageId == "2" && panics {
			panics = false
			panic("half done")
		}
		return c.handle(ctx, m)
	}, partly)
	e := batch("orders", "g 1", "g 2", "g 3")
	wantPanic(t, "half done", func() { _, _ = f(t.Context(), e) })
	wantFailures(t, f, e)
	wantHandled(t, &c, "1", "2", "3")
}

func TestSQSHandlerTx_RowsAndRecordAreCommittedTogether(t *testing.T) {
	store := adaptertest.NewStore()
	fails, runs := true, 0
	f := lambdaonce.SQSHandlerTx(inbox.NewTx(store, shipping), func(_ context.Context, tx adaptertest.Tx, m events.SQSMessage) error {
		runs++
		if tx["shipment"] = m.Body; fails {
			return errAway
		}
		return nil
	}, partly)
	e := batch("orders", "g 1")
	wantFailures(t, f, e, "1")
	if row := store.Row("shipment"); row != "" {
		t.Errorf("the row is %q", row)
	}
	fails = false
	for range 3 {
		wantFailures(t, f, e)
	}
	if row := store.Row("shipment"); row != "g 1" || runs != 2 {
		t.Errorf("the row is %q, after %d runs", row, runs)
	}
}

func TestSQSHandler_WithoutAnInboxOrAHandlerItPanics(t *testing.T) {
	wantPanic(t, "lambdaonce: SQSHandler: the Inbox or the handler is nil", func() { lambdaonce.SQSHandler(newInbox(), nil, partly) })
	wantPanic(t, "lambdaonce: SQSHandlerTx: the TxInbox or the handler is nil", func() { lambdaonce.SQSHandlerTx[adaptertest.Tx](nil, nil, partly) })
}
