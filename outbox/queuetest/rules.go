package queuetest

import (
	"fmt"
	"slices"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// line returns messages of one key.
func (t *queueTest) line(n int) (list []outbox.Message) {
	for _, p := range payloads(n) {
		list = append(list, message("k", p))
	}
	return list
}

// drain publishes the waiting messages, which must have these payloads in this order, all of one key.
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
