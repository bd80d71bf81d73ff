package jetstreamonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/jetstreamonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

var errAway = errors.New("the carrier is away")

func TestConsumer_AMessageThatIsPublishedTwiceIsHandledOnce(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	var want []string
	for i := range 20 {
		data := fmt.Sprint("order ", i)
		want = append(want, data)
		s.publish(data, messageID(data)...)
		s.publish(data, messageID(data)...)
	}
	var l ledger
	stop := s.run(jetstreamonce.New(newInbox(), l.handle, quick))
	s.waitForAcks()
	stop()
	l.Want(t, want...)
}

func TestConsumer_ALostAcknowledgmentHasNoSecondEffect(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{AckWait: 200 * time.Millisecond})
	s.publish("a")
	from := &lossy{Consumer: s.consumer}
	from.loses.Store(3)
	cfg := shipping
	cfg.Redelivery = 200 * time.Millisecond
	var l ledger
	s.runFrom(from, jetstreamonce.New(inbox.New(memstore.New(memstore.Config{}), cfg), l.handle, quick))
	l.WaitFor(t, 1)
	s.waitForAcks()
	l.Want(t, "a")
	if n := from.loses.Load(); n >= 0 {
		t.Errorf("%d acknowledgments are still to be lost", n)
	}
}

func TestConsumer_AMessageThatFailsIsDeliveredAgainAfterADelay(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	for _, data := range []string{"bad", "a", "b"} {
		s.publish(data)
	}
	var l ledger
	var away atomic.Bool
	away.Store(true)
	var tries atomic.Int32
	s.run(jetstreamonce.New(newInbox(), func(ctx context.Context, m jetstream.Msg) error {
		if string(m.Data()) == "bad" && away.Load() {
			tries.Add(1)
			return errAway
		}
		return l.handle(ctx, m)
	}, quick))
	l.WaitFor(t, 2)
	consumertest.Eventually(t, "the first is delivered again", func() bool { return tries.Load() >= 3 })
	l.Want(t, "a", "b")
	away.Store(false)
	s.waitForAcks()
	l.Want(t, "a", "b", "bad")
}

func TestConsumer_WithOneMessageAtATimeTheOrderIsPreserved(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{MaxAckPending: 1})
	for _, data := range []string{"bad", "a", "b"} {
		s.publish(data)
	}
	var l ledger
	var tries atomic.Int32
	s.run(jetstreamonce.New(newInbox(), func(ctx context.Context, m jetstream.Msg) error {
		if string(m.Data()) == "bad" && tries.Add(1) < 4 {
			return errAway
		}
		return l.handle(ctx, m)
	}, quick))
	s.waitForAcks()
	l.Want(t, "bad", "a", "b")
}

func TestConsumer_TheServerIsToldThatAPoisonedMessageIsFinished(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	ended, err := s.conn.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED." + s.name + ".shipping")
	if err == nil {
		err = s.conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.publish("bad")
	s.publish("a")
	var l, poisoned ledger
	var tries atomic.Int32
	cfg := shipping
	cfg.MaxAttempts = 3
	cfg.Poison = func(ctx context.Context, m inbox.Message, cause error) error {
		meta, err := jetstreamonce.Message(ctx).Metadata()
		poisoned.Note(fmt.Sprintf("%d %s: %v", meta.Sequence.Stream, m.Payload, cause))
		return err
	}
	s.run(jetstreamonce.New(inbox.New(memstore.New(memstore.Config{}), cfg), func(ctx context.Context, m jetstream.Msg) error {
		if string(m.Data()) == "bad" {
			tries.Add(1)
			m.Data()[0] = '-' // Poison gets what was delivered
			return errAway
		}
		return l.handle(ctx, m)
	}, quick))
	s.waitForAcks()
	l.Want(t, "a")
	poisoned.Want(t, "1 bad: the carrier is away")
	if n := tries.Load(); n != 3 {
		t.Errorf("%d tries", n)
	}
	if m, err := ended.NextMsg(consumertest.Patience); err != nil || !strings.Contains(string(m.Data), `"stream_seq":1`) {
		t.Errorf("the server published %v, %v", m, err)
	}
	if m := jetstreamonce.Message(t.Context()); m != nil {
		t.Errorf("a context of another kind has the message %v", m)
	}
}

func TestConsumer_APanicIsAFailureOfItsMessage(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{MaxAckPending: 1})
	for _, data := range []string{"a", "b", "c"} {
		s.publish(data)
	}
	var l, failed ledger
	cfg := quick
	cfg.Failed = func(_ context.Context, m jetstream.Msg, err error) {
		failed.Note(string(m.Data()) + ": " + err.Error())
	}
	var first sync.Map
	s.run(jetstreamonce.New(newInbox(), func(ctx context.Context, m jetstream.Msg) error {
		if _, again := first.LoadOrStore(string(m.Data()), true); !again {
			switch string(m.Data()) {
			case "a":
				panic("half done")
			case "b":
				runtime.Goexit()
			}
		}
		return l.handle(ctx, m)
	}, cfg))
	s.waitForAcks()
	l.Want(t, "a", "b", "c")
	failed.Want(t, "a: the handler panicked: half done", "b: the handler ended its goroutine")
}

func TestConsumer_APanicOfFailedChangesNothing(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	s.publish("a")
	var l ledger
	var tries atomic.Int32
	cfg := quick
	cfg.Failed = func(context.Context, jetstream.Msg, error) {
		if tries.Load() == 1 {
			panic("a bug")
		}
		runtime.Goexit()
	}
	s.run(jetstreamonce.New(newInbox(), func(ctx context.Context, m jetstream.Msg) error {
		if tries.Add(1) <= 2 {
			return errors.New("the carrier is away")
		}
		return l.handle(ctx, m)
	}, cfg))
	s.waitForAcks()
	l.Want(t, "a")
}

func TestConsumer_TheServerIsToldThatAMessageIsBeingHandled(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{AckWait: 300 * time.Millisecond})
	s.publish("a")
	from := &lossy{Consumer: s.consumer}
	cfg := shipping
	cfg.Redelivery = 300 * time.Millisecond
	var l ledger
	s.runFrom(from, jetstreamonce.New(inbox.New(memstore.New(memstore.Config{}), cfg), func(ctx context.Context, m jetstream.Msg) error {
		consumertest.Eventually(t, "the server is told three times", func() bool { return from.inProgress.Load() >= 3 })
		return l.handle(ctx, m)
	}, quick))
	l.WaitFor(t, 1)
	s.waitForAcks()
	l.Want(t, "a")
}

func TestConsumer_AHandlerCannotAcknowledgeItsMessage(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	s.publish("a")
	var l ledger
	fails := true
	s.run(jetstreamonce.New(newInbox(), func(ctx context.Context, m jetstream.Msg) error {
		for _, err := range []error{m.Ack(), m.DoubleAck(ctx), m.Nak(), m.NakWithDelay(time.Hour), m.Term(), m.TermWithReason("no")} {
			if !errors.Is(err, jetstreamonce.ErrOwnAck) {
				t.Errorf("got %v", err)
			}
		}
		if fails {
			fails = false
			return m.Ack()
		}
		return l.handle(ctx, m)
	}, quick))
	s.waitForAcks()
	l.Want(t, "a")
}

func TestConsumer_SeveralMessagesAreHandledAtATime(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	cfg := quick
	cfg.Handlers = 3
	all := make(chan struct{})
	var running atomic.Int32
	var l ledger
	s.run(jetstreamonce.New(newInbox(), func(ctx context.Context, m jetstream.Msg) error {
		if running.Add(1) == 3 {
			close(all)
		}
		<-all
		return l.handle(ctx, m)
	}, cfg))
	for _, data := range []string{"a", "b", "c"} {
		s.publish(data)
	}
	l.WaitFor(t, 3)
}

func TestConsumer_WhichMessagesAreTheSame(t *testing.T) {
	events := quick
	events.ID = func(m jetstream.Msg) string { return m.Headers().Get("ce-source") + " " + m.Headers().Get("ce-id") }
	events.Tenant = func(m jetstream.Msg) string { return "of " + m.Headers().Get("ce-source") }
	for name, c := range map[string]struct {
		cfg           jetstreamonce.Config
		first, second []string // headers
		runs          int
		ids           []onlyonce.ID
	}{
		"by default, none": {quick, nil, nil, 2, nil},
		"those of an outbox with its message ID": {
			quick,
			[]string{outbox.HeaderID, "m", outbox.HeaderTenant, "acme", jetstream.MsgIDHeader, "1"},
			[]string{outbox.HeaderID, "m", outbox.HeaderTenant, "acme", jetstream.MsgIDHeader, "2"},
			1,
			[]onlyonce.ID{{Tenant: "acme", Key: "m"}},
		},
		"not those of two tenants": {
			quick,
			[]string{outbox.HeaderID, "m", outbox.HeaderTenant, "acme"},
			[]string{outbox.HeaderID, "m"},
			2,
			[]onlyonce.ID{{Tenant: "acme", Key: "m"}, {Key: "m"}},
		},
		"those with an ID of one's own": {
			events,
			[]string{"ce-source", "/shop", "ce-id", "1"},
			[]string{"ce-source", "/shop", "ce-id", "1"},
			1,
			[]onlyonce.ID{{Tenant: "of /shop", Key: "/shop 1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, store := newStream(t, jetstream.ConsumerConfig{}), memstore.New(memstore.Config{})
			s.publish("order 7", c.first...)
			s.publish("order 7", c.second...)
			var l ledger
			s.run(jetstreamonce.New(inbox.New(store, shipping), l.handle, c.cfg))
			s.waitForAcks()
			l.Want(t, slices.Repeat([]string{"order 7"}, c.runs)...)
			for _, id := range c.ids {
				wantHandled(t, store, id)
			}
		})
	}
}

func wantHandled(t *testing.T, store onlyonce.Store, id onlyonce.ID) {
	t.Helper()
	id.Operation = "shipping"
	if rec, err := store.Lookup(t.Context(), id); err != nil || rec.State != onlyonce.StateCompleted {
		t.Errorf("%+v is %s, %v", id, rec.State, err)
	}
}

func TestConsumer_TheInboxFindsTheTraceInTheMessage(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s, store := newStream(t, jetstream.ConsumerConfig{}), memstore.New(memstore.Config{})
	s.publish("a", outbox.HeaderTraceparent, trace, outbox.HeaderID, "m")
	cfg := shipping
	cfg.Traceparent = func(ctx context.Context) string {
		return jetstreamonce.Message(ctx).Headers().Get(outbox.HeaderTraceparent)
	}
	var l ledger
	s.run(jetstreamonce.New(inbox.New(store, cfg), l.handle, quick))
	s.waitForAcks()
	if rec, err := store.Lookup(t.Context(), onlyonce.ID{Operation: "shipping", Key: "m"}); err != nil || rec.Result.Traceparent != trace {
		t.Errorf("the trace is %q, %v", rec.Result.Traceparent, err)
	}
}

// A stream forgets a Nats-Msg-Id after its duplicate window, and takes the message again.
func TestConsumer_AMessageWithTheSameNatsMsgIdIsHandledOnceAlsoAfterTheWindow(t *testing.T) {
	s, store := newStream(t, jetstream.ConsumerConfig{}), memstore.New(memstore.Config{})
	if _, err := s.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: s.name, Subjects: []string{s.name}, Duplicates: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	consumertest.Eventually(t, "the stream has taken the message twice", func() bool {
		s.publish("order 7", jetstream.MsgIDHeader, "7")
		stream, err := s.js.Stream(t.Context(), s.name)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Msgs >= 2
	})
	var l ledger
	s.run(jetstreamonce.New(inbox.New(store, shipping), l.handle, quick))
	s.waitForAcks()
	l.Want(t, "order 7")
	wantHandled(t, store, onlyonce.ID{Key: "7"})
}

func TestConsumer_WhenItEndsTheRunningHandlerIsFinishedAndNoOtherBegins(t *testing.T) {
	s, in := newStream(t, jetstream.ConsumerConfig{}), newInbox()
	s.publish("a")
	var l ledger
	began, goOn := make(chan struct{}), make(chan struct{})
	cfg := quick
	cfg.Handlers = 3
	stop := s.run(jetstreamonce.New(in, func(ctx context.Context, m jetstream.Msg) error {
		close(began)
		<-goOn
		if ctx.Err() != nil {
			t.Error("the handler's context has ended")
		}
		return l.handle(ctx, m)
	}, cfg))
	<-began
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	select {
	case <-stopped:
		t.Error("Run returned while the handler was running")
	case <-time.After(50 * time.Millisecond): // a moment in which it would return if it did not wait
	}
	close(goOn)
	<-stopped
	s.publish("b")
	l.Want(t, "a")
	s.run(jetstreamonce.New(in, l.handle, cfg))
	s.waitForAcks()
	l.Want(t, "a", "b")
}

func TestConsumerTx_RowsAndRecordAreCommittedTogether(t *testing.T) {
	s, store := newStream(t, jetstream.ConsumerConfig{AckWait: 200 * time.Millisecond}), adaptertest.NewStore()
	s.publish("a")
	from := &lossy{Consumer: s.consumer}
	from.loses.Store(1)
	cfg := quick
	cfg.Failed = func(context.Context, jetstream.Msg, error) {
		if row := store.Row("shipment"); row != "" {
			t.Errorf("the row of an attempt that failed is %q", row)
		}
	}
	box := shipping
	box.Redelivery = 200 * time.Millisecond
	var runs atomic.Int32
	s.runFrom(from, jetstreamonce.NewTx(inbox.NewTx(store, box), func(_ context.Context, tx adaptertest.Tx, m jetstream.Msg) error {
		tx["shipment"] = string(m.Data())
		if runs.Add(1) < 3 {
			return errAway
		}
		return nil
	}, cfg))
	s.waitForAcks()
	if row := store.Row("shipment"); row != "a" || runs.Load() != 3 {
		t.Errorf("the row is %q, after %d runs", row, runs.Load())
	}
}

func TestConsumer_AMistakeIsRejected(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	c := jetstreamonce.New(newInbox(), new(ledger).handle, quick)
	for want, settings := range map[string]jetstream.ConsumerConfig{
		"the consumer's AckPolicy is ":                                    {AckPolicy: jetstream.AckAllPolicy},
		"the consumer's AckWait is 1s, but the inbox's Redelivery is 30s": {AckWait: time.Second},
		"the consumer's MaxDeliver is 5: leave it 0":                      {MaxDeliver: 5},
		"the consumer's BackOff is [1s], which replaces its AckWait":      {BackOff: []time.Duration{time.Second}, MaxDeliver: 5},
	} {
		if err := c.Run(t.Context(), s.newConsumer("other", settings)); err == nil || !strings.HasPrefix(err.Error(), "jetstreamonce: Run: "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := s.js.DeleteConsumer(t.Context(), s.name, "other"); err != nil {
			t.Fatal(err)
		}
	}
	for want, f := range map[string]func(){
		"jetstreamonce: New: the Inbox or the handler is nil":     func() { jetstreamonce.New(newInbox(), nil, quick) },
		"jetstreamonce: NewTx: the TxInbox or the handler is nil": func() { jetstreamonce.NewTx[adaptertest.Tx](nil, nil, quick) },
		"jetstreamonce: Config.Handlers is negative (-1): write a positive value, or leave it 0 for the default, 1": func() {
			jetstreamonce.New(newInbox(), new(ledger).handle, jetstreamonce.Config{Handlers: -1})
		},
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("got the panic %v, want %s", got, want)
				}
			}()
			f()
		}()
	}
}

func TestConsumer_AfterAnErrorOfTheServerItGoesOn(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	from := &lossy{Consumer: s.consumer}
	from.fails.Store(2)
	var l ledger
	s.runFrom(from, jetstreamonce.New(newInbox(), l.handle, quick))
	s.publish("a")
	s.waitForAcks()
	l.Want(t, "a")
}

func TestConsumer_AMessageThatLooksLikeTheEndOfTheConsumerDoesNotEndRun(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	s.publish("", "Status", "409", "Description", "Consumer Deleted")
	s.publish("a")
	var l ledger
	stop := s.run(jetstreamonce.New(newInbox(), l.handle, quick))
	l.WaitFor(t, 1)
	stop()
	l.Want(t, "a")
}

func TestConsumer_AMessageThatTheClientDropsKeepsOutNoOthers(t *testing.T) {
	for _, status := range []string{"canceled", "408", "404"} { // the client reports an error for the first one only
		t.Run(status, func(t *testing.T) {
			const ackWait = time.Second
			s := newStream(t, jetstream.ConsumerConfig{AckWait: ackWait})
			s.publish("", "Status", status)
			want := []string{"a", "b", "c"}
			for _, data := range want {
				s.publish(data)
			}
			settings, cfg := shipping, quick
			settings.Redelivery, cfg.Handlers = ackWait, 10
			var l ledger
			stop := s.run(jetstreamonce.New(inbox.New(memstore.New(memstore.Config{}), settings), l.handle, cfg))
			consumertest.Eventually(t, "the other messages are handled", func() bool {
				return slices.Equal(slices.Compact(slices.Sorted(slices.Values(l.List()))), want)
			})
			stop()
		})
	}
}

func TestConsumer_RunEndsWhenTheConsumerIsDeletedAndCreatedAgain(t *testing.T) {
	s := newStream(t, jetstream.ConsumerConfig{})
	from := replaced{s.consumer, func() {
		if err := s.js.DeleteConsumer(t.Context(), s.name, "shipping"); err != nil {
			t.Error(err)
		}
		s.newConsumer("shipping", jetstream.ConsumerConfig{MaxDeliver: 5})
	}}
	if err := jetstreamonce.New(newInbox(), new(ledger).handle, quick).Run(t.Context(), from); !errors.Is(err, jetstream.ErrConsumerDeleted) {
		t.Errorf("got %v, want %v", err, jetstream.ErrConsumerDeleted)
	}
}

func TestConsumer_RunEndsWhenTheConsumerGetsSettingsThatLoseMessages(t *testing.T) {
	const ackWait = time.Second // Run checks as often
	s := newStream(t, jetstream.ConsumerConfig{AckWait: ackWait})
	settings := shipping
	settings.Redelivery = ackWait
	c := jetstreamonce.New(inbox.New(memstore.New(memstore.Config{}), settings), func(context.Context, jetstream.Msg) error {
		s.newConsumer("shipping", jetstream.ConsumerConfig{AckWait: ackWait, MaxDeliver: 5})
		return nil
	}, quick)
	s.publish("a")
	const want = "jetstreamonce: Run: the consumer's MaxDeliver is 5: "
	if err := c.Run(t.Context(), s.consumer); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	s.waitForAcks() // the message that was being handled is finished
}

func TestConsumer_AnErrorOfTheServerIsLogged(t *testing.T) {
	was, text := slog.Default(), make(lines, 1)
	slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
	defer slog.SetDefault(was)
	s := newStream(t, jetstream.ConsumerConfig{MaxRequestBatch: 1})
	s.publish("a")
	cfg := quick
	cfg.Handlers = 2
	var l ledger
	stop := s.run(jetstreamonce.New(newInbox(), l.handle, cfg))
	consumertest.Eventually(t, "the error is logged", func() bool {
		select {
		case line := <-text:
			return strings.Contains(line, "jetstreamonce: messages could not be fetched") && strings.Contains(line, "Exceeded MaxRequestBatch of 1")
		default:
			return false
		}
	})
	s.newConsumer("shipping", jetstream.ConsumerConfig{})
	s.waitForAcks()
	stop()
	l.Want(t, "a")
}

func TestConsumer_RunEndsWhenTheConsumerIsDeletedOrTheConnectionIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*stream) error
		want error
	}{
		"deleted": {func(s *stream) error { return s.js.DeleteConsumer(s.t.Context(), s.name, "shipping") }, jetstream.ErrConsumerDeleted},
		"closed":  {func(s *stream) error { s.conn.Close(); return nil }, nats.ErrConnectionClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, jetstream.ConsumerConfig{})
			conn, err := nats.Connect(s.conn.ConnectedUrl())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			other := *s
			if other.js, err = jetstream.New(conn); err != nil {
				t.Fatal(err)
			}
			other.conn = conn
			from, err := other.js.Consumer(t.Context(), s.name, "shipping")
			if err != nil {
				t.Fatal(err)
			}
			s.publish("a")
			var l ledger
			ended := make(chan error, 1)
			go func() { ended <- jetstreamonce.New(newInbox(), l.handle, quick).Run(t.Context(), from) }()
			l.WaitFor(t, 1)
			if err := c.end(&other); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestConsumer_AServerThatIsKilledLosesNoMessage(t *testing.T) {
	needs.Time(t)
	server, err := natsserver.Start("jetstream { sync_interval: always }")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := nats.Connect("nats://"+server.Address(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	s := openStream(t, conn, jetstream.ConsumerConfig{AckWait: time.Second})
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
		s.publish(want[i])
	}
	cfg := shipping
	cfg.Redelivery = time.Second
	var l ledger
	s.run(jetstreamonce.New(inbox.New(memstore.New(memstore.Config{}), cfg), func(ctx context.Context, m jetstream.Msg) error {
		if string(m.Data()) == "20" || string(m.Data()) == "60" {
			if err := server.Restart(); err != nil {
				t.Error(err)
			}
		}
		return l.handle(ctx, m)
	}, quick))
	l.WaitFor(t, 100)
	consumertest.Eventually(t, "all messages are acknowledged", func() bool {
		info, err := s.consumer.Info(t.Context())
		return err == nil && info.NumAckPending == 0 && info.NumPending == 0
	})
	got := l.List()
	slices.SortFunc(got, func(a, b string) int { return slices.Index(want, a) - slices.Index(want, b) })
	if !slices.Equal(got, want) {
		t.Errorf("handled %q", got)
	}
}
