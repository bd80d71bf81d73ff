package queuetest

import (
	"errors"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/outbox"
)

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
			list := t.lease("one", short, 1)
			err := t.renew("one", long, list...)
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
		list := t.lease("one", short, 1)
		t.awaitLapse("two", 1)
		t.wantLost(t.renew("one", short, list...))
		t.want("three", 1)
		t.wantLost(t.renew("nobody", short, list...))
		t.wantLost(t.renew("two", short))
	}},
	{"a lease is renewed on the messages that are named", func(t *queueTest) {
		t.add(message("", "a"), message("", "b"))
		list := t.want("one", 100, "a", "b")
		t.must(t.renew("one", short, list[0]))
		t.wantSame(t.awaitLapse("two", 1), []string{"a"})
		t.must(t.renew("one", long, list...)) // one of them
		t.want("three", 100)
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
