package queuetest

import (
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

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
