package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestRelay_ManyMessagesOfOneKeyHoldUpNoOthers(t *testing.T) {
	for _, batch := range []int{0, 50} {
		in(t, func(t *testing.T) {
			q, b := newMemQueue(), &broker{takes: 10 * time.Millisecond}
			const many = 1500 // they take 15 seconds, because they are published one at a time
			for i := range many {
				appendAll(t, q, message("busy", fmt.Sprintf("busy %04d", i)))
			}
			start(t, q, b, outbox.Config{Batch: batch})
			for i := range 5 {
				other := fmt.Sprintf("other %d", i)
				appendAll(t, q, message([]string{"", "calm"}[i%2], other))
				pass(2 * time.Second)
				if !slices.Contains(b.payloads(), other) {
					t.Errorf("the message %q still waits", other)
				}
			}
			pass(6 * time.Second) // a second longer than they take alone
			wantLag(t, q, 0, 0)
			busy := slices.DeleteFunc(b.payloads(), func(p string) bool { return !strings.HasPrefix(p, "busy") })
			if len(busy) != many || !slices.IsSorted(busy) {
				t.Errorf("%d messages were published of the busy key, in order: %v", len(busy), slices.IsSorted(busy))
			}
		})
	}
}

// A searchingQueue takes long to lease messages, as a database does that has to pass over very many of a
// key that others wait for.
type searchingQueue struct{ *memQueue }

func (q searchingQueue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	time.Sleep(3 * time.Second)
	return q.memQueue.Lease(ctx, owner, lease, limit, except...)
}

func TestRelay_AQueueThatLeasesSlowlyLeavesHalfOfTheTimeToABusyKey(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{takes: 10 * time.Millisecond}
		for i := range 3000 { // they take 30 seconds, because they are published one at a time
			appendAll(t, q, message("busy", fmt.Sprint(i)))
		}
		start(t, searchingQueue{q}, b, outbox.Config{})
		pass(90 * time.Second) // 60, and 30 for the first small batches
		wantLag(t, q, 0, 0)
	})
}

func TestRelay_SeveralKeysOfManyMessagesArePublishedSideBySide(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{takes: 10 * time.Millisecond}
		const keys, many = 6, 500 // they take 30 seconds if they are published key by key
		for k := range keys {
			for i := range many {
				appendAll(t, q, message(fmt.Sprint("busy", k), fmt.Sprintf("%d/%04d", k, i)))
			}
		}
		appendAll(t, q, message("", "other"))
		start(t, q, b, outbox.Config{})
		pass(15 * time.Second)
		if !slices.Contains(b.payloads(), "other") {
			t.Error("the other message still waits")
		}
		pass(5 * time.Second)
		wantLag(t, q, 0, 0)
		got := slices.DeleteFunc(b.payloads(), func(p string) bool { return p == "other" })
		slices.SortStableFunc(got, func(a, b string) int { return int(a[0]) - int(b[0]) })
		if len(got) != keys*many || !slices.IsSorted(got) {
			t.Errorf("%d messages were published, in the order of their keys: %v", len(got), slices.IsSorted(got))
		}
	})
}
