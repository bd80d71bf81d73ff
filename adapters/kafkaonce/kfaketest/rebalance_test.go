package kfaketest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkaonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// An audit finds records that are handled twice or out of order.
type audit struct {
	t    *testing.T
	mu   sync.Mutex
	next map[int32]int64 // by partition: the offset that comes next
	by   map[string]int  // by member: how many records it has handled
}

func newAudit(t *testing.T) *audit {
	return &audit{t: t, next: map[int32]int64{}, by: map[string]int{}}
}

// handler returns the handler of a member.
func (a *audit) handler(member string) func(context.Context, *kgo.Record) error {
	return func(_ context.Context, r *kgo.Record) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.Offset != a.next[r.Partition] {
			a.t.Errorf("%s handles %s, but %d comes next", member, at(r), a.next[r.Partition])
		}
		a.next[r.Partition] = r.Offset + 1
		a.by[member]++
		return nil
	}
}

func (a *audit) handled(member string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by[member]
}

func TestRebalance_EachRecordIsHandledOnceAndInOrder(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{"cooperative": kgo.CooperativeStickyBalancer(), "eager": kgo.RangeBalancer()} {
		t.Run(name, func(t *testing.T) {
			const partitions = 4
			k, a, store := start(t, partitions), newAudit(t), memstore.New(memstore.Config{})
			sent := 0
			send := func() {
				for p := range int32(partitions) {
					k.produce(record(p, fmt.Sprint(sent)))
					sent++
				}
			}
			join := func(member string) (stop func()) {
				return k.run(kafkaonce.New(inbox.New(store, shipping), a.handler(member), quick), kgo.Balancers(balancer))
			}
			stopFirst := join("first")
			consumertest.Eventually(t, "the first member handles records", func() bool { send(); return a.handled("first") > 0 })
			join("second")
			consumertest.Eventually(t, "the second member handles records", func() bool { send(); return a.handled("second") > 0 })
			join("third")
			consumertest.Eventually(t, "the third member handles records", func() bool { send(); return a.handled("third") > 0 })
			stopFirst()
			before := a.handled("first")
			send()
			consumertest.Eventually(t, "all are handled", func() bool {
				return a.handled("first")+a.handled("second")+a.handled("third") == sent
			})
			if n := a.handled("first"); n != before {
				t.Errorf("the first member has handled %d records after its end", n-before)
			}
		})
	}
}

// A member that gives up a partition first finishes the record that it is handling, and commits. So
// the next member gets no record that was or is being handled.
func TestRebalance_APartitionIsGivenUpAfterItsRecordWasHandledAndCommitted(t *testing.T) {
	k, store := start(t, 2), memstore.New(memstore.Config{})
	k.produce(record(0, "a"), record(1, "b"), record(0, "c"), record(1, "d"))
	var syncs atomic.Int32 // each member calls SyncGroup in each round
	k.cluster.ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		syncs.Add(1)
		return nil, nil, false
	})
	cfg := shipping
	cfg.Observer = func(_ context.Context, e onlyonce.Event) {
		if e.Outcome != onlyonce.OutcomeExecuted {
			t.Errorf("a record was %s", e.Outcome)
		}
	}
	var l ledger
	began, goOn := make(chan string, 4), make(chan struct{})
	k.run(kafkaonce.New(inbox.New(store, cfg), func(ctx context.Context, r *kgo.Record) error {
		began <- at(r)
		<-goOn
		return l.handle(ctx, r)
	}, quick))
	<-began
	<-began
	k.run(kafkaonce.New(inbox.New(store, cfg), l.handle, quick))
	consumertest.Eventually(t, "the group has assigned a partition to the second member", func() bool { return syncs.Load() >= 3 })
	close(goOn)
	l.WaitFor(t, 4)
}

// A partition whose records wait is paused. It must not stay so when the member loses it and gets it
// again.
func TestRebalance_APartitionThatComesBackGoesOn(t *testing.T) {
	k := start(t, 1)
	for _, value := range []string{"a", "b", "c"} {
		k.produce(record(0, value)) // in a batch of its own
	}
	var removes atomic.Bool
	k.removeMember(&removes)
	var fetches atomic.Int32
	k.cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		fetches.Add(1)
		return nil, nil, false
	})
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	var l ledger
	k.run(kafkaonce.New(newInbox(), func(ctx context.Context, r *kgo.Record) error {
		began <- struct{}{}
		<-goOn
		return l.handle(ctx, r)
	}, quick), kgo.FetchMaxBytes(1), kgo.FetchMaxPartitionBytes(1))
	<-began
	consumertest.Eventually(t, "the next record is fetched", func() bool { return fetches.Load() >= 2 })
	removes.Store(true)
	consumertest.Eventually(t, "the member is told that it was removed", func() bool { return !removes.Load() })
	close(goOn)
	l.WaitFor(t, 3)
	l.Want(t, "a", "b", "c")
}

// A member that Kafka has removed from the group cannot commit. Its record is delivered again, and
// has no second effect.
func TestRebalance_AMemberThatWasRemovedHasNoSecondEffect(t *testing.T) {
	k, in := start(t, 1), newInbox()
	k.produce(record(0, "a"))
	var removes atomic.Bool
	k.removeMember(&removes)
	began, goOn := make(chan struct{}, 2), make(chan struct{})
	var l ledger
	k.run(kafkaonce.New(in, func(ctx context.Context, r *kgo.Record) error {
		began <- struct{}{}
		<-goOn
		return l.handle(ctx, r)
	}, quick))
	<-began
	removes.Store(true)
	consumertest.Eventually(t, "the member is told that it was removed", func() bool { return !removes.Load() })
	k.run(kafkaonce.New(in, l.handle, quick))
	close(goOn)
	consumertest.Eventually(t, "the offset is committed", func() bool { return k.committed(0) == 1 })
	l.Want(t, "a")
}

// removeMember tells the next member that sends a heartbeat while removes is true that the group has
// removed it, and makes removes false.
func (k *kafka) removeMember(removes *atomic.Bool) {
	k.cluster.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if !removes.CompareAndSwap(true, false) {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
}
