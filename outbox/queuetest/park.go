package queuetest

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce/outbox"
)

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
// the parked one, and wants the key's messages in their order, whichever caller leases them.
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

// parkOne parks the first message of a key that has another, beside another
// key's.
func (t *queueTest) parkOne() outbox.Entry {
	t.Helper()
	t.add(message("k", "a"), message("k", "b"), message("l", "other"))
	list := t.want("one", 1, "a")
	t.must(t.settle("one", outbox.Verdict{State: outbox.StateParked, Attempts: 7, Error: "no"}, list...))
	return list[0]
}
