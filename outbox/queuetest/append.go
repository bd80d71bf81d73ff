package queuetest

import (
	"bytes"
	"context"
	"maps"
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
