package queuetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

var appendRules = []rule{
	{"what is committed is there, in the order in which it was appended", func(t *queueTest) {
		t.add(message("", "a"), message("k", "b"))
		t.add(message("", "c"))
		t.want("one", 100, "a", "b", "c")
	}},
	{"nothing is left of what is rolled back", func(t *queueTest) {
		tx, err := t.Begin(t.Context())
		t.must(err)
		t.must(tx.Append(t.Context(), message("", "a"), message("k", "b")))
		t.must(tx.Rollback())
		t.add(message("", "c"))
		t.want("one", 100, "c")
	}},
	{"what is not committed is not there", func(t *queueTest) {
		if t.OneWriter {
			t.Skip("the queue has one writer: a lease would wait for the transaction")
		}
		tx, err := t.Begin(t.Context())
		t.must(err)
		t.must(tx.Append(t.Context(), message("", "a")))
		t.want("one", 100)
		t.must(tx.Commit())
		t.want("one", 100, "a")
	}},
	{"a message committed after later ones were published is not lost", func(t *queueTest) {
		if t.OneWriter {
			t.Skip("the queue has one writer: two transactions cannot append at the same time")
		}
		tx, err := t.Begin(t.Context())
		t.must(err)
		t.must(tx.Append(t.Context(), message("k", "early")))
		t.add(message("k", "late"))
		t.must(t.settle("one", published, t.want("one", 100, "late")...))
		t.must(tx.Commit())
		t.want("one", 100, "early")
	}},
	{"a message comes out as it went in", func(t *queueTest) {
		in := outbox.Message{
			ID: "my id; 'ö' \\x", Topic: "orders.créated", Key: "key ‰", Tenant: "acme 🎉",
			Headers: map[string]string{"X-Text": "tab-free \"quoted\" {}", outbox.HeaderTraceparent: "00-1-2-01", "empty": ""},
			Payload: []byte{0, 1, 0xff, '\n', '"', 0},
		}
		want, err := outbox.Prepare(t.Context(), in)
		t.must(err)
		t.add(in)
		before := time.Now()
		got := t.lease("one", long, 1)[0]
		if got.ID != want.ID || got.Topic != want.Topic || got.Key != want.Key || got.Tenant != want.Tenant || !maps.Equal(got.Headers, want.Headers) || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("got %+v, want %+v", got.Message, want)
		}
		if d := before.Sub(got.CreatedAt); d < -time.Hour || d > time.Hour || got.Attempts != 0 || got.Error != "" {
			t.Errorf("got %+v", got)
		}
	}},
	{"an empty message and a large one come out", func(t *queueTest) {
		large := strings.Repeat("0123456789abcdef", 32<<10)
		t.add(outbox.Message{Topic: "t"}, message("", large))
		t.want("one", 100, "", large)
	}},
	{"a message without an ID gets one, and keeps it", func(t *queueTest) {
		t.add(message("", "a"), message("", "b"))
		list := t.lease("one", short, 100)
		again := t.awaitLapse("two", 2)
		if list[0].ID == "" || list[0].ID == list[1].ID || again[0].ID != list[0].ID || again[0].Headers[outbox.HeaderID] != list[0].ID {
			t.Errorf("the IDs are %q and %q, then %q", list[0].ID, list[1].ID, again[0].ID)
		}
	}},
	{"what outbox.Prepare rejects is rejected", func(t *queueTest) {
		tx, err := t.Begin(t.Context())
		t.must(err)
		if err := tx.Append(t.Context(), outbox.Message{}); err == nil {
			t.Error("a message without a topic was appended")
		}
		t.must(tx.Rollback())
	}},
	{"an append wakes the waiters", func(t *queueTest) {
		w, ok := t.Queue.(outbox.Waker)
		if !ok {
			t.Skip("the queue is not a Waker")
		}
		woken := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		go func() { woken <- w.Wait(ctx) }()
		t.add(message("", "a"))
		t.must(<-woken)
		ended, end := context.WithCancel(t.Context())
		end()
		t.until("Wait returns when its context ends", func() bool { return w.Wait(ended) != nil }) // there may have been other appends
	}},
}

var leaseRules = []rule{
	{"a leased message is leased to no other relay", func(t *queueTest) {
		t.add(message("", "a"), message("k", "b"))
		t.want("one", 100, "a", "b")
		t.want("two", 100)
		t.want("one", 100)
	}},
	{"at most limit messages are leased, the oldest first", func(t *queueTest) {
		t.add(message("", "a"), message("", "b"), message("", "c"))
		t.want("one", 2, "a", "b")
		t.want("two", 2, "c")
	}},
	{"the messages that are leased fit into memory, and are the oldest", func(t *queueTest) {
		large := strings.Repeat("x", 12<<20)
		t.add(message("", large), message("k", large), message("", large), message("k", "b"))
		for _, want := range [][]int{{len(large), len(large)}, {len(large)}} {
			var got []int
			for _, e := range t.lease("one", long, 100) {
				got = append(got, len(e.Payload))
			}
			if !slices.Equal(got, want) {
				t.Errorf("leased payloads of %d bytes, want %d", got, want)
			}
		}
		t.want("two", 100) // the last one waits for its key
	}},
	{"a message whose lease lapsed is leased again, in its place", func(t *queueTest) {
		t.add(message("k", "a"), message("k", "b"), message("", "c"))
		t.wantSame(t.lease("one", short, 100), []string{"a", "b", "c"})
		t.wantSame(t.awaitLapse("two", 3), []string{"a", "b", "c"})
	}},
	{"a lease that is renewed does not lapse", func(t *queueTest) {
		t.add(message("", "a"))
		t.until("the lease is renewed before it lapses", func() bool {
			t.lease("one", short, 1)
			err := t.Queue.Renew(t.Context(), "one", long)
			if !errors.Is(err, outbox.ErrLost) {
				t.must(err)
			}
			return err == nil
		})
		// A message that is leased later as the first one was tells when that lease would have lapsed.
		t.add(message("", "b"))
		t.wantSame(t.lease("clock", short, 100), []string{"b"})
		t.wantSame(t.awaitLapse("two", 1), []string{"b"})
	}},
	{"a lease that others have can't be renewed", func(t *queueTest) {
		t.add(message("", "a"))
		t.lease("one", short, 1)
		t.awaitLapse("two", 1)
		t.wantLost(t.Queue.Renew(t.Context(), "one", short))
		t.want("three", 1)
		t.wantLost(t.Queue.Renew(t.Context(), "nobody", short))
	}},
}

var keyRules = []rule{
	{"no other relay leases a message of a leased key", func(t *queueTest) {
		t.add(message("k", "a"), message("k", "b"), message("l", "c"), message("", "d"))
		t.want("one", 1, "a")
		t.want("two", 100, "c", "d")
	}},
	{"what is put back until later holds back its key", func(t *queueTest) {
		t.add(message("k", "a"), message("k", "b"), message("l", "c"))
		list := t.want("one", 1, "a")
		t.must(t.settle("one", outbox.Verdict{State: outbox.StateWaiting, After: long, Attempts: 1, Error: "no"}, list...))
		t.want("two", 100, "c")
	}},
	{"a message that was deferred is leased when it is due, before the rest of its key", func(t *queueTest) {
		t.add(message("k", "a"), message("k", "b"))
		list := t.want("one", 100, "a", "b")
		t.must(t.Queue.Settle(t.Context(), "one", []outbox.Verdict{
			{Seq: list[0].Seq, State: outbox.StateWaiting, After: short, Attempts: 3, Error: "no"},
			{Seq: list[1].Seq, State: outbox.StateWaiting},
		}))
		again := t.awaitLapse("two", 2)
		t.wantSame(again, []string{"a", "b"})
		if again[0].Attempts != 3 || again[0].Error != "no" || again[1].Attempts != 0 || again[1].Error != "" {
			t.Errorf("attempts and errors are %+v", again)
		}
	}},
	{"a message that was returned is leased again at once, in its place", func(t *queueTest) {
		t.add(message("k", "a"), message("k", "b"), message("", "c"))
		t.must(t.settle("one", outbox.Verdict{State: outbox.StateWaiting}, t.want("one", 100, "a", "b", "c")...))
		t.want("two", 100, "a", "b", "c")
	}},
	{"keys that differ in case, accents or a space are different", func(t *queueTest) {
		keys := []string{"key", "KEY", "kéy", "key ", " key", "ke\u0301y"}
		for _, k := range keys {
			t.add(message(k, k))
		}
		for _, k := range keys {
			t.want("owner "+k, 1, k)
		}
	}},
	{"no message of an excepted topic is leased, nor one of a key that has such a message", func(t *queueTest) {
		of := func(topic, key, payload string) outbox.Message {
			return outbox.Message{Topic: topic, Key: key, Payload: []byte(payload)}
		}
		away, too := "away <&é>", `"too"`
		t.add(of(away, "", "a"), of("test", "", "b"), of(away, "k", "c"), of("test", "k", "d"), of(too, "l", "e"), of("test", "m", "f"), of("AWAY <&É>", "", "g"))
		list, err := t.Queue.Lease(t.Context(), "one", long, 100, away, too)
		t.must(err)
		t.wantSame(list, []string{"b", "f", "g"})
		t.want("two", 100, "a", "c", "d", "e")
	}},
	{"one failing key does not hide others behind it", func(t *queueTest) {
		for range 50 {
			t.add(message("bad", "x"))
		}
		t.add(message("good", "y"))
		list := t.lease("one", long, 1)
		t.must(t.settle("one", outbox.Verdict{State: outbox.StateWaiting, After: long}, list...))
		t.want("two", 10, "y")
	}},
}

var settleRules = []rule{
	{"a published message is deleted", func(t *queueTest) {
		t.add(message("k", "a"), message("k", "b"))
		t.must(t.settle("one", published, t.want("one", 1, "a")...))
		t.want("two", 100, "b")
		t.wantLag(1, 0)
	}},
	{"what is published and kept is purged when its time is over", func(t *queueTest) {
		t.add(message("k", "a"), message("k", "b"))
		list := t.want("one", 100, "a", "b")
		t.must(t.settle("one", outbox.Verdict{State: outbox.StatePublished, After: long}, list[0]))
		t.must(t.settle("one", outbox.Verdict{State: outbox.StatePublished, After: time.Millisecond}, list[1]))
		t.wantLag(0, 0)
		t.want("two", 100)
		purged := 0
		t.until("the time is over", func() bool {
			n, err := t.Queue.Purge(t.Context(), 100)
			t.must(err)
			purged = n
			return purged > 0
		})
		if n, err := t.Queue.Purge(t.Context(), 100); purged != 1 || n != 0 || err != nil {
			t.Errorf("purged %d, then %d, %v", purged, n, err)
		}
	}},
	{"a purge is bounded, and deletes no waiting message", func(t *queueTest) {
		t.add(message("", "a"), message("", "b"), message("", "c"), message("", "d"))
		list := t.lease("one", long, 3)
		t.must(t.settle("one", outbox.Verdict{State: outbox.StatePublished, After: time.Microsecond}, list...))
		time.Sleep(20 * time.Millisecond)
		for _, want := range []int{2, 1, 0} {
			if n, err := t.Queue.Purge(t.Context(), 2); n != want || err != nil {
				t.Errorf("purged %d, want %d, %v", n, want, err)
			}
		}
		t.want("two", 100, "d")
	}},
	{"a relay that lost the lease settles nothing", func(t *queueTest) {
		t.add(message("k", "a"), message("", "b"))
		t.lease("one", short, 2)
		list := t.awaitLapse("two", 2)
		for _, state := range []string{outbox.StatePublished, outbox.StateWaiting, outbox.StateParked} {
			t.wantLost(t.settle("one", outbox.Verdict{State: state}, list...))
		}
		t.want("three", 100)
		t.wantLag(2, 0)
		t.must(t.settle("two", published, list...))
		t.wantLag(0, 0)
	}},
	{"what is still one's own is settled beside what is lost", func(t *queueTest) {
		t.add(message("", "a"))
		t.lease("one", short, 1)
		lost := t.awaitLapse("two", 1)
		t.add(message("", "b"))
		own := t.want("one", 100, "b")
		t.wantLost(t.settle("one", published, append(lost, own...)...))
		t.wantLag(1, 0)
	}},
	{"a lapsed lease may settle as long as no other relay has the message", func(t *queueTest) {
		t.add(message("k", "a"))
		list := t.lease("one", short, 1)
		time.Sleep(2 * short)
		t.must(t.settle("one", published, list...))
		t.wantLag(0, 0)
	}},
	{"the lag is what waits or is leased, and the age of the oldest", func(t *queueTest) {
		t.wantLag(0, 0)
		t.add(message("", "a"))
		time.Sleep(50 * time.Millisecond)
		t.add(message("", "b"), message("", "c"))
		t.want("one", 2, "a", "b")
		t.wantLag(3, 0)
		lag, err := t.Queue.Lag(t.Context())
		if t.must(err); lag.Oldest < 45*time.Millisecond || lag.Oldest > time.Minute {
			t.Errorf("the oldest is %v old", lag.Oldest)
		}
	}},
	{"many are leased and settled at once", func(t *queueTest) {
		want := payloads(1000)
		var all []outbox.Message
		for _, p := range want {
			all = append(all, message(p[3:], p))
		}
		t.add(all...)
		t.must(t.settle("one", published, t.want("one", 2000, want...)...))
		t.wantLag(0, 0)
	}},
}

var parkRules = []rule{
	{"what is parked is listed with its attempts and its error", func(t *queueTest) {
		t.add(message("", "a"), message("", "b"), message("", "c"))
		list := t.want("one", 100, "a", "b", "c")
		t.must(t.settle("one", outbox.Verdict{State: outbox.StateParked, Attempts: 7, Error: "too large: 'ö'"}, list[0], list[2]))
		t.must(t.settle("one", published, list[1]))
		t.wantLag(0, 2)
		t.want("two", 100)
		parked, err := t.Queue.Parked(t.Context(), 0, 1)
		if t.must(err); len(parked) != 1 || parked[0].Seq != list[0].Seq || parked[0].Attempts != 7 || parked[0].Error != "too large: 'ö'" || parked[0].ID != list[0].ID {
			t.Fatalf("parked: %+v", parked)
		}
		parked, err = t.Queue.Parked(t.Context(), parked[0].Seq, 100)
		if t.must(err); len(parked) != 1 || parked[0].Seq != list[2].Seq {
			t.Fatalf("then: %+v", parked)
		}
	}},
	{"what is parked holds back its key until it is requeued, and then comes first", func(t *queueTest) {
		parked := t.parkOne()
		t.want("two", 100, "other")
		t.count(t.Queue.Requeue(t.Context(), parked.Seq, parked.Seq+1000))(1)
		list := t.want("three", 100, "a", "b")
		if list[0].Attempts != 0 || list[0].Error != "" {
			t.Errorf("requeued as %+v", list[0])
		}
		t.wantLag(3, 0)
	}},
	{"a parked message holds back its key until it is discarded, and is then deleted", func(t *queueTest) {
		parked := t.parkOne()
		t.count(t.Queue.Discard(t.Context(), parked.Seq))(1)
		t.count(t.Queue.Discard(t.Context(), parked.Seq))(0)
		t.want("two", 100, "b", "other")
		t.wantLag(2, 0)
	}},
	{"very many messages behind a parked one keep their order when it is requeued", func(t *queueTest) {
		t.behindParked(t.Queue.Requeue, "0000")
	}},
	{"very many messages behind a parked one keep their order when it is discarded", func(t *queueTest) {
		t.behindParked(t.Queue.Discard)
	}},
	{"the messages behind very many parked ones keep their order", func(t *queueTest) {
		const many, keys = 700, 40
		var all []outbox.Message
		for i, p := range payloads(many) {
			all = append(all, message(fmt.Sprint(i%keys), p))
		}
		t.add(all[:many-keys]...)
		parked := t.want("one", keys, payloads(keys)...)
		t.must(t.settle("one", outbox.Verdict{State: outbox.StateParked, Error: "no"}, parked...))
		for range 3 {
			t.want("two", 10)
		}
		t.add(all[many-keys:]...)
		var seqs []int64
		for _, e := range parked {
			seqs = append(seqs, e.Seq)
		}
		t.count(t.Queue.Discard(t.Context(), seqs...))(keys)
		last := make(map[string]string)
		for left := many - keys; left > 0; {
			list := t.lease("one", long, many)
			if len(list) == 0 {
				t.Fatalf("leased nothing while %d messages wait", left)
			}
			for _, e := range list {
				if last[e.Key] > string(e.Payload) {
					t.Fatalf("%s has overtaken %s", last[e.Key], e.Payload)
				}
				last[e.Key] = string(e.Payload)
			}
			left -= len(list)
			t.must(t.settle("one", published, list...))
		}
		t.wantLag(0, 0)
	}},
	{"very many messages of a lapsed lease can be settled late, and the rest of their key keep their order", func(t *queueTest) {
		const many, late = 1300, 700
		all := t.line(many)
		t.add(all[:many-100]...)
		lapsed := t.lease("one", short, late)
		var list []outbox.Entry
		t.until("the lease lapses", func() bool {
			list = t.lease("two", long, 1)
			return len(list) > 0
		})
		for range 3 {
			t.want("three", 10)
		}
		t.add(all[many-100:]...)
		t.wantLost(t.settle("one", published, lapsed...))
		t.must(t.settle("two", published, list...))
		t.wantLag(many-late, 0)
		t.drain(payloads(many)[late:]...)
	}},
	{"what is not parked can't be requeued or discarded", func(t *queueTest) {
		t.add(message("", "a"), message("", "b"))
		list := t.want("one", 1, "a")
		t.count(t.Queue.Requeue(t.Context(), list[0].Seq, list[0].Seq+1))(0)
		t.count(t.Queue.Discard(t.Context(), list[0].Seq, list[0].Seq+1))(0)
		t.count(t.Queue.Requeue(t.Context()))(0)
		t.want("two", 100, "b")
	}},
}

// behindParked parks the first of many messages of a key, publishes others meanwhile, decides about
// the parked one, and wants the key's messages in their order, whoever leases them.
func (t *queueTest) behindParked(decide func(ctx context.Context, seqs ...int64) (int, error), first ...string) {
	t.Helper()
	const many = 1300
	all := t.line(many)
	t.add(all[:many-100]...)
	parked := t.want("one", 1, "0000")
	t.must(t.settle("one", outbox.Verdict{State: outbox.StateParked, Attempts: 7, Error: "no"}, parked...))
	for i := range 6 {
		t.add(message("", "other"), message("l", "too"))
		t.must(t.settle("two", published, t.want("two", 10, "other", "too")...))
		if i == 3 {
			t.add(all[many-100:]...)
		}
	}
	t.wantLag(many-1, 1)
	t.count(decide(t.Context(), parked[0].Seq))(1)
	t.add(message("k", "last"))
	t.drain(append(append(first, payloads(many)[1:]...), "last")...)
}

// line returns messages of one key.
func (t *queueTest) line(n int) (list []outbox.Message) {
	for _, p := range payloads(n) {
		list = append(list, message("k", p))
	}
	return list
}

// drain publishes what waits, and wants these payloads, all of one key, in their order.
func (t *queueTest) drain(want ...string) {
	t.Helper()
	var got []string
	for i := 0; len(got) < len(want); i++ {
		owner := fmt.Sprint("owner ", i)
		list := t.lease(owner, long, 170)
		if len(list) == 0 {
			t.Fatalf("leased nothing after %d messages", len(got))
		}
		t.want("another", 100) // the key is leased
		for _, e := range list {
			got = append(got, string(e.Payload))
		}
		t.must(t.settle(owner, published, list...))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("leased %q, want %q", got, want)
	}
	t.wantLag(0, 0)
}

// parkOne parks the first message of a key that has another, beside another
// key's.
func (t *queueTest) parkOne() outbox.Entry {
	t.Helper()
	t.add(message("k", "a"), message("k", "b"), message("l", "other"))
	list := t.want("one", 1, "a")
	t.must(t.settle("one", outbox.Verdict{State: outbox.StateParked, Attempts: 7, Error: "no"}, list...))
	return list[0]
}

func (t *queueTest) count(n int, err error) func(want int) {
	t.Helper()
	t.must(err)
	return func(want int) {
		t.Helper()
		if n != want {
			t.Fatalf("%d were, want %d", n, want)
		}
	}
}
