package kfaketest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkaonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A ledger has a handler that notes its records.
type ledger struct{ consumertest.Ledger }

func (l *ledger) handle(_ context.Context, r *kgo.Record) error {
	l.Note(string(r.Value))
	return nil
}

var errAway = errors.New("the carrier is away")

func TestConsumer_AnOffsetIsCommittedAfterItsRecordWasHandled(t *testing.T) {
	k := start(t, 2)
	var mu sync.Mutex
	handled := map[int32]int64{} // by partition: the offset after the last
	seen, tell := make(chan struct{}), sync.Once{}
	k.watchCommits(func(partition int32, offset int64) {
		mu.Lock()
		defer mu.Unlock()
		if offset > handled[partition] {
			t.Errorf("offset %d of partition %d is committed, %d are handled", offset, partition, handled[partition])
		}
		tell.Do(func() { close(seen) })
	})
	const each = 40
	for i := range each {
		k.produce(record(0, fmt.Sprint(i)), record(1, fmt.Sprint(i)))
	}
	c := kafkaonce.New(newInbox(), func(_ context.Context, r *kgo.Record) error {
		if r.Offset == each/2 {
			<-seen // so that there is a commit between two records
		}
		mu.Lock()
		defer mu.Unlock()
		if r.Offset != handled[r.Partition] {
			t.Errorf("%s is handled after %d others", at(r), handled[r.Partition])
		}
		handled[r.Partition]++
		return nil
	}, quick)
	stop := k.run(c)
	consumertest.Eventually(t, "all are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return handled[0] == each && handled[1] == each
	})
	stop()
	if a, b := k.committed(0), k.committed(1); a != each || b != each {
		t.Errorf("the offsets %d and %d are committed", a, b)
	}
	k.run(c)
	k.produce(record(1, "another"))
	consumertest.Eventually(t, "the new record is handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return handled[1] == each+1
	})
}

func TestConsumer_ALostCommitHasNoSecondEffect(t *testing.T) {
	k := start(t, 2)
	var lost atomic.Bool
	lost.Store(true)
	k.loseCommits(&lost)
	k.produce(record(0, "a"), record(1, "b"), record(0, "c"))
	var replayed atomic.Int32
	cfg := shipping
	cfg.Observer = func(_ context.Context, e onlyonce.Event) {
		if e.Outcome == onlyonce.OutcomeReplayed {
			replayed.Add(1)
		}
	}
	var l ledger
	c := kafkaonce.New(inbox.New(memstore.New(memstore.Config{}), cfg), l.handle, quick)
	for run := range int32(3) {
		stop := k.run(c)
		consumertest.Eventually(t, "all are delivered", func() bool { return len(l.List()) == 3 && replayed.Load() >= 3*run })
		stop()
		if k.committed(0) != 0 || k.committed(1) != 0 {
			t.Fatal("a commit was not lost")
		}
	}
	lost.Store(false)
	stop := k.run(c)
	consumertest.Eventually(t, "all are delivered again", func() bool { return replayed.Load() >= 9 })
	stop()
	if k.committed(0) != 2 || k.committed(1) != 1 {
		t.Errorf("the offsets %d and %d are committed", k.committed(0), k.committed(1))
	}
	if got := l.List(); len(got) != 3 {
		t.Errorf("handled %q", got)
	}
}

func TestConsumer_ARecordThatFailsHoldsUpItsPartitionOnly(t *testing.T) {
	k := start(t, 2)
	var first, others ledger
	var away atomic.Bool
	away.Store(true)
	var tries atomic.Int32
	stop := k.run(kafkaonce.New(newInbox(), func(ctx context.Context, r *kgo.Record) error {
		if r.Partition == 1 {
			return others.handle(ctx, r)
		}
		if tries.Add(1); away.Load() {
			return errAway
		}
		return first.handle(ctx, r)
	}, quick))
	for i := range 20 { // more than the failing partition has room for
		k.produce(record(0, fmt.Sprint(i)), record(1, fmt.Sprint(i)))
		others.WaitFor(t, i+1)
	}
	consumertest.Eventually(t, "the first is tried again", func() bool { return tries.Load() >= 5 })
	first.Want(t)
	if n := k.committed(0); n != 0 {
		t.Errorf("the offset %d is committed", n)
	}
	away.Store(false)
	first.WaitFor(t, 20)
	stop()
	first.Want(t, others.List()...)
	if n := k.committed(0); n != 20 {
		t.Errorf("the offset %d is committed", n)
	}
}

func TestConsumer_PoisonGetsTheRecordAndItsPartitionGoesOn(t *testing.T) {
	k := start(t, 1)
	k.produce(record(0, "a"), record(0, "bad"), record(0, "worse"), record(0, "b"))
	var l, poisoned ledger
	var tries atomic.Int32
	cfg := shipping
	cfg.MaxAttempts = 3
	cfg.Poison = func(ctx context.Context, m inbox.Message, cause error) error {
		r := kafkaonce.Record(ctx)
		poisoned.Note(fmt.Sprintf("%s %s: %v", at(r), m.Payload, cause))
		return nil
	}
	stop := k.run(kafkaonce.New(inbox.New(memstore.New(memstore.Config{}), cfg), func(ctx context.Context, r *kgo.Record) error {
		switch string(r.Value) {
		case "bad":
			tries.Add(1)
			return errAway
		case "worse":
			tries.Add(1)
			return onlyonce.Final(errAway)
		}
		return l.handle(ctx, r)
	}, quick))
	l.WaitFor(t, 2)
	stop()
	l.Want(t, "a", "b")
	poisoned.Want(t, "0/1 bad: the carrier is away", "0/2 worse: the carrier is away")
	if tries.Load() != 4 || k.committed(0) != 4 {
		t.Errorf("%d tries, the offset %d is committed", tries.Load(), k.committed(0))
	}
	if r := kafkaonce.Record(t.Context()); r != nil {
		t.Errorf("a context of another kind has the record %v", r)
	}
}

func TestConsumer_APanicIsAFailureOfItsRecord(t *testing.T) {
	k := start(t, 1)
	k.produce(record(0, "a"), record(0, "b"), record(0, "c"))
	var l, failed ledger
	cfg := quick
	cfg.Failed = func(_ context.Context, r *kgo.Record, err error) { failed.Note(at(r) + ": " + err.Error()) }
	seen := map[string]bool{}
	k.run(kafkaonce.New(newInbox(), func(ctx context.Context, r *kgo.Record) error {
		if v := string(r.Value); !seen[v] {
			seen[v] = true
			switch v {
			case "a":
				panic("half done")
			case "b":
				runtime.Goexit()
			}
		}
		return l.handle(ctx, r)
	}, cfg))
	l.WaitFor(t, 3)
	l.Want(t, "a", "b", "c")
	failed.Want(t, "0/0: the handler panicked: half done", "0/1: the handler ended its goroutine")
}

func TestConsumer_APanicOfFailedChangesNothing(t *testing.T) {
	k := start(t, 1)
	k.produce(record(0, "a"), record(0, "b"))
	var l ledger
	var tries atomic.Int32
	cfg := quick
	cfg.Failed = func(context.Context, *kgo.Record, error) {
		if tries.Load() == 1 {
			panic("a bug")
		}
		runtime.Goexit()
	}
	k.run(kafkaonce.New(newInbox(), func(ctx context.Context, r *kgo.Record) error {
		if tries.Add(1) <= 2 {
			return errAway
		}
		return l.handle(ctx, r)
	}, cfg))
	l.WaitFor(t, 2)
	l.Want(t, "a", "b")
}

func TestConsumer_AHandlerMayChangeItsRecord(t *testing.T) {
	k := start(t, 1)
	sent := record(0, "a")
	sent.Key, sent.Headers = []byte("key"), []kgo.RecordHeader{{Key: "header", Value: []byte("x")}}
	k.produce(sent)
	var l ledger
	k.run(kafkaonce.New(newInbox(), func(_ context.Context, r *kgo.Record) error {
		l.Note(string(r.Key) + string(r.Value) + string(r.Headers[0].Value))
		r.Key[0], r.Value[0], r.Headers[0].Value[0], r.Headers[0].Key = '-', '-', '-', "-"
		if len(l.List()) < 3 {
			return errAway
		}
		return nil
	}, quick))
	l.WaitFor(t, 3)
	l.Want(t, "keyax", "keyax", "keyax")
}

func TestConsumer_WhichRecordsAreTheSame(t *testing.T) {
	with := func(value string, headers ...string) *kgo.Record {
		r := record(0, value)
		for i := 0; i < len(headers); i += 2 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
		}
		r.Timestamp = time.UnixMilli(1764266400000)
		return r
	}
	header := func(r *kgo.Record, name string) string {
		for _, h := range r.Headers {
			if h.Key == name {
				return string(h.Value)
			}
		}
		return ""
	}
	events := quick
	events.ID = func(r *kgo.Record) string { return header(r, "ce_source") + " " + header(r, "ce_id") }
	events.Tenant = func(r *kgo.Record) string { return "of " + header(r, "ce_source") }
	for name, c := range map[string]struct {
		cfg           kafkaonce.Config
		first, second *kgo.Record
		runs          int
		ids           []onlyonce.ID
	}{
		"by default, none": {quick, with("order 7"), with("order 7"), 2, []onlyonce.ID{{Key: "orders/0/0@1764266400000"}, {Key: "orders/0/1@1764266400000"}}},
		"those of an outbox with its message ID": {
			quick, with("order 7", outbox.HeaderID, "m", outbox.HeaderTenant, "acme"), with("order 7", outbox.HeaderID, "m", outbox.HeaderTenant, "acme"),
			1,
			[]onlyonce.ID{{Tenant: "acme", Key: "m"}},
		},
		"not those of two tenants": {
			quick, with("order 7", outbox.HeaderID, "m", outbox.HeaderTenant, "acme"), with("order 7", outbox.HeaderID, "m"),
			2,
			[]onlyonce.ID{{Tenant: "acme", Key: "m"}, {Key: "m"}},
		},
		"those with an ID of one's own": {
			events, with("order 7", "ce_source", "/shop", "ce_id", "1"), with("order 7", "ce_source", "/shop", "ce_id", "1"),
			1,
			[]onlyonce.ID{{Tenant: "of /shop", Key: "/shop 1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, store := start(t, 1), memstore.New(memstore.Config{})
			k.produce(c.first, c.second, record(0, "last"))
			var l ledger
			k.run(kafkaonce.New(inbox.New(store, shipping), l.handle, c.cfg))
			l.WaitFor(t, c.runs+1)
			l.Want(t, append(slices.Repeat([]string{"order 7"}, c.runs), "last")...)
			for _, id := range c.ids {
				id.Operation = "shipping"
				if rec, err := store.Lookup(t.Context(), id); err != nil || rec.State != onlyonce.StateCompleted {
					t.Errorf("%+v is %s, %v", id, rec.State, err)
				}
			}
		})
	}
}

func TestConsumer_TheInboxFindsTheTraceInTheRecord(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	k, store := start(t, 1), memstore.New(memstore.Config{})
	r := record(0, "a")
	r.Headers = []kgo.RecordHeader{{Key: outbox.HeaderTraceparent, Value: []byte(trace)}, {Key: outbox.HeaderID, Value: []byte("m")}}
	k.produce(r)
	cfg := shipping
	cfg.Traceparent = func(ctx context.Context) string { return string(kafkaonce.Record(ctx).Headers[0].Value) }
	var l ledger
	stop := k.run(kafkaonce.New(inbox.New(store, cfg), l.handle, quick))
	l.WaitFor(t, 1)
	stop()
	if rec, err := store.Lookup(t.Context(), onlyonce.ID{Operation: "shipping", Key: "m"}); err != nil || rec.Result.Traceparent != trace {
		t.Errorf("the trace is %q, %v", rec.Result.Traceparent, err)
	}
}

// A record with the ID of another is not handled, and holds up its partition until Poison gets it.
func TestConsumer_AnotherRecordWithTheSameIDIsNotHandled(t *testing.T) {
	k := start(t, 1)
	same := func(value string) *kgo.Record {
		r := record(0, value)
		r.Headers = []kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte("m")}}
		return r
	}
	k.produce(same("a"), same("b"), record(0, "c"))
	var l ledger
	reason := make(chan error, 1)
	cfg := quick
	cfg.Failed = func(_ context.Context, _ *kgo.Record, err error) {
		select {
		case reason <- err:
		default:
		}
	}
	store := memstore.New(memstore.Config{})
	stop := k.run(kafkaonce.New(inbox.New(store, shipping), l.handle, cfg))
	if err := <-reason; !errors.Is(err, onlyonce.ErrMismatch) {
		t.Errorf("got %v", err)
	}
	stop()
	l.Want(t, "a")
	poisoned := shipping
	poisoned.Poison = func(context.Context, inbox.Message, error) error { return nil }
	k.run(kafkaonce.New(inbox.New(store, poisoned), l.handle, quick))
	l.WaitFor(t, 2)
	l.Want(t, "a", "c")
}

func TestConsumer_ATopicThatWasCreatedAgainHasOtherRecords(t *testing.T) {
	k := start(t, 1)
	in := newInbox()
	admin := kadm.NewClient(k.newClient())
	for i := range int64(2) {
		var l ledger
		r := record(0, "order 7")
		r.Timestamp = time.UnixMilli(i)
		producer := k.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		stop := k.run(kafkaonce.New(in, l.handle, quick), kgo.ConsumerGroup(fmt.Sprint("group ", i)))
		l.WaitFor(t, 1)
		stop()
		if _, err := admin.DeleteTopics(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConsumer_ARecordOfATransactionThatWasAbortedIsNotHandled(t *testing.T) {
	k := start(t, 1)
	producer := k.newClient(kgo.TransactionalID("shop"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for value, end := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		err := producer.BeginTransaction()
		if err == nil {
			err = producer.ProduceSync(t.Context(), record(0, value)).FirstErr()
		}
		if err == nil {
			err = producer.EndTransaction(t.Context(), end)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	k.produce(record(0, "last"))
	var l ledger
	k.run(kafkaonce.New(newInbox(), l.handle, quick))
	l.WaitFor(t, 2)
	l.Want(t, "committed", "last")
}

func TestConsumer_WhenItEndsTheRunningHandlerIsFinishedAndNoOtherBegins(t *testing.T) {
	k := start(t, 1)
	k.produce(record(0, "a"), record(0, "b"))
	var l ledger
	began, goOn := make(chan struct{}), make(chan struct{})
	stop := k.run(kafkaonce.New(newInbox(), func(ctx context.Context, r *kgo.Record) error {
		close(began)
		<-goOn
		if ctx.Err() != nil {
			t.Error("the handler's context has ended")
		}
		return l.handle(ctx, r)
	}, quick))
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
	l.Want(t, "a")
	if n := k.committed(0); n != 1 {
		t.Errorf("the offset %d is committed", n)
	}
}

func TestConsumerTx_RowsAndRecordAreCommittedTogether(t *testing.T) {
	k, store := start(t, 1), adaptertest.NewStore()
	k.produce(record(0, "a"))
	var lost, fails atomic.Bool
	lost.Store(true)
	fails.Store(true)
	k.loseCommits(&lost)
	var runs, tries atomic.Int32
	cfg := quick
	cfg.Failed = func(context.Context, *kgo.Record, error) {
		if row := store.Row("shipment"); row != "" {
			t.Errorf("the row of an attempt that failed is %q", row)
		}
		fails.Store(tries.Add(1) < 3)
	}
	c := kafkaonce.NewTx(inbox.NewTx(store, shipping), func(_ context.Context, tx adaptertest.Tx, r *kgo.Record) error {
		tx["shipment"] = string(r.Value)
		if fails.Load() {
			return errAway
		}
		runs.Add(1)
		return nil
	}, cfg)
	for range 2 {
		stop := k.run(c)
		consumertest.Eventually(t, "the row is there", func() bool { return store.Row("shipment") == "a" })
		stop()
	}
	if runs.Load() != 1 || tries.Load() != 3 {
		t.Errorf("%d runs after %d failures", runs.Load(), tries.Load())
	}
}

func TestConsumer_AMistakeIsRejected(t *testing.T) {
	c := kafkaonce.New(newInbox(), new(ledger).handle, quick)
	for want, opts := range map[string][]kgo.Opt{
		"group":                 {kgo.ConsumeTopics("orders")},
		"disable autocommit":    {kgo.ConsumerGroup("shipping"), kgo.DisableAutoCommit()},
		"greedy autocommitting": {kgo.ConsumerGroup("shipping"), kgo.GreedyAutoCommit()},
	} {
		if err := c.Run(t.Context(), append(opts, kgo.SeedBrokers("127.0.0.1:1"))...); err == nil || !strings.HasPrefix(err.Error(), "kafkaonce: Run: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	for want, f := range map[string]func(){
		"kafkaonce: New: the Inbox or the handler is nil":     func() { kafkaonce.New(newInbox(), nil, quick) },
		"kafkaonce: NewTx: the TxInbox or the handler is nil": func() { kafkaonce.NewTx[adaptertest.Tx](nil, nil, quick) },
		"kafkaonce: Config.Backoff is negative (-1ns): write a positive value, or leave it 0 for the default, 100ms": func() {
			kafkaonce.New(newInbox(), new(ledger).handle, kafkaonce.Config{Backoff: -1})
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
