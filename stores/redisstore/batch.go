package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/stores/internal/group"
)

// The limits of batches.
const (
	maxBatch     = 128              // items: it bounds how long the server runs a script
	batchTimeout = 15 * time.Second // of a batch of several callers, besides the time for the replicas
	lanes        = 2                // batches that are under way at a time
	minWaiting   = 16               // callers that justify the second
)

// A batcher runs a script once for the items of many callers, which costs the server
// about half of what it costs to run it for each. Where a script must keep to one slot,
// each item is run on its own, because its keys are in a slot of their own.
type batcher struct {
	store  *Store
	script *script
	queue  *group.Queue[*item] // nil: each item is run on its own
}

// An item holds the arguments that one caller passes to the script, and its result.
type item struct {
	ctx        context.Context // the caller's, for the item that is alone
	keys, args []string
	reply      rueidis.RedisMessage
	err        error
}

// batches makes the store's batchers.
func (s *Store) batches(ctx context.Context) error {
	together, err := s.spansSlots(ctx)
	if err != nil {
		return err
	}
	s.claims, s.settlements = newBatcher(s, claimScript, together), newBatcher(s, settleScript, together)
	return nil
}

// spansSlots reports whether a script may have keys in several slots. A client for one
// server does not know whether that is a node of a cluster, or a proxy of one.
func (s *Store) spansSlots(ctx context.Context) (bool, error) {
	if s.client.Mode() == rueidis.ClientModeCluster {
		return false, nil
	}
	k := s.known.Load().keys
	_, err := lookScript.run(ctx, s.client, []string{k.swept(0), k.index(1)}, nil)
	if failed, ok := rueidis.IsRedisErr(err); ok {
		return !strings.HasPrefix(failed.Error(), "CROSSSLOT"), nil
	}
	if errors.Is(err, ErrForgotten) {
		err = nil // the risk is accepted
	}
	return true, err
}

func newBatcher(s *Store, sc *script, together bool) *batcher {
	b := &batcher{store: s, script: sc}
	if together {
		b.queue = group.New(group.Config[*item]{Write: b.write, Max: maxBatch, Lanes: lanes, MinWaiting: minWaiting})
	}
	return b
}

// run runs the script for one item, together with the items of other callers unless it
// is large.
func (b *batcher) run(ctx context.Context, keys []string, args ...string) (rueidis.RedisMessage, error) {
	it := &item{ctx: ctx, keys: keys, args: args}
	size := 0
	for _, arg := range args {
		size += len(arg)
	}
	var err error
	if b.queue == nil || size > group.LongestShared {
		err = b.runAll(ctx, []*item{it})
	} else {
		err = b.queue.Do(ctx, it)
	}
	if err == nil {
		err = it.err
	}
	return it.reply, err
}

// write runs a batch. A caller whose context ends waits for it, at most batchTimeout and
// the time for the replicas, because nothing is known of its item before.
func (b *batcher) write(_ int, batch []*group.Ticket[*item]) (then func()) {
	items := make([]*item, len(batch))
	for i, t := range batch {
		items[i] = t.Job
	}
	ctx := items[0].ctx
	if len(items) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), batchTimeout+b.store.replicaTimeout)
		defer cancel()
	}
	err := b.runAll(ctx, items)
	for _, t := range batch {
		b.queue.Finish(t, err)
	}
	return nil
}

// runAll runs the script once for all items, each of which gets its own reply or error.
func (b *batcher) runAll(ctx context.Context, items []*item) error {
	keys := make([]string, 0, len(items)*len(items[0].keys))
	args := make([]string, 0, len(items)*len(items[0].args))
	for _, it := range items {
		keys, args = append(keys, it.keys...), append(args, it.args...)
	}
	reply, err := b.store.run(ctx, b.script, keys, args...)
	if err != nil {
		return err
	}
	replies, err := reply.ToArray()
	if err != nil {
		return err
	}
	for i, it := range items {
		it.reply, it.err = replies[i], failure(replies[i].Error())
	}
	return nil
}

func (b *batcher) close() {
	if b.queue != nil {
		b.queue.Close()
	}
}
