package etcdstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd has no clock that a client can read, so the store keeps one under a key. A process
// reads it, adds the time that has passed since on its own monotonic clock, and publishes
// the sum from time to time. How a process's clock is set does not matter, only how fast it goes.
//
// Publications form a chain: each one names the one before, or is not stored. Those by which
// one process continues its own clock form a generation, all of which show the same clock.
// A process that publishes what it has read begins a generation, whose clock is behind the
// one before by the time between the publication and the reading, and never ahead of it.
//
// Leases begin by the clock of a generation that the process has begun itself, and end by
// that of the latest generation. The first is never behind the second, so no lease ends
// early. Before a call says that a lease or a record has ended, the clock is published, so
// that it has ended for every process.
type clock struct {
	client  *clientv3.Client
	cluster *cluster
	key     string
	start   time.Time

	publishing sync.Mutex // locked by the call that publishes

	mu         sync.Mutex
	value      clockValue // the latest that was read
	created    int64      // the revision at which Migrate made the key; 0: it has not been read
	revision   int64      // of the latest publication
	judging    int64      // what the clock of its generation is ahead of the process's, or less
	leasing    int64      // what the clock of a generation of this process is
	generation uint64     // the latest that this process has begun
	anchored   bool       // leasing is known
	anchor     time.Time  // when it became known
}

// A clockValue is the value of the clock's key.
type clockValue struct {
	at         int64  // in microseconds; it comes first, so that a transaction can compare it
	generation uint64 // 1: that of Migrate
	epoch      [16]byte
	lease      clientv3.LeaseID // its time to live shows how long ago the clock was published
}

const clockSize = 40

func (v *clockValue) encode() string {
	b := make([]byte, 0, clockSize)
	b = binary.BigEndian.AppendUint64(b, uint64(v.at))
	b = binary.BigEndian.AppendUint64(b, v.generation)
	b = append(b, v.epoch[:]...)
	return string(binary.BigEndian.AppendUint64(b, uint64(v.lease)))
}

var errClock = errors.New("the value of the store's clock is damaged: restore it, or delete it and call Migrate once")

func parseClock(b []byte) (v clockValue, err error) {
	if len(b) != clockSize {
		return v, errClock
	}
	v.at, v.generation = int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])
	copy(v.epoch[:], b[16:])
	v.lease = clientv3.LeaseID(binary.BigEndian.Uint64(b[32:]))
	if v.at <= 0 {
		return v, errClock
	}
	return v, nil
}

const (
	// fresh is how old the published clock may be when a lease begins.
	fresh = 200 * time.Millisecond

	// ahead is how far the clock by which leases begin may be ahead of that by which they
	// end, and so how much longer a lease may last.
	ahead = 5 * time.Second

	// suspended is by how much the monotonic clock may fall behind the wall clock until the
	// process counts as one that was suspended.
	suspended = time.Second

	// countdown is the time to live of the clock's lease, in seconds: ten years.
	countdown = 10 * 365 * 24 * 60 * 60
)

func newClock(client *clientv3.Client, c *cluster, key string) *clock {
	return &clock{client: client, cluster: c, key: key, start: time.Now()}
}

// local returns the process's monotonic clock.
func (c *clock) local() int64 { return time.Since(c.start).Microseconds() }

// A reading holds the times that the clock shows.
type reading struct {
	judging   int64 // leases and keeps that have ended by it have ended
	shown     int64 // the best guess: at least judging
	published int64
}

// before returns the clock to show with a record. If one of its ends has not come, it shows
// an instant before that.
func (r reading) before(ends ...int64) int64 {
	now := max(r.shown, r.judging)
	for _, end := range ends {
		if end > r.judging {
			now = min(now, end-1)
		}
	}
	return now
}

// read takes in the key of the clock as a transaction has read it, and returns the clock.
func (c *clock) read(kv *mvccpb.KeyValue) (reading, error) {
	if kv == nil {
		c.cluster.forget()
		return reading{}, ErrForgotten
	}
	v, err := parseClock(kv.Value)
	if err != nil {
		return reading{}, err
	}
	local := c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(kv, &v, local)
	r := reading{judging: local + c.judging, published: c.value.at}
	r.shown = r.judging
	if c.anchored {
		r.shown = max(r.shown, local+c.leasing)
	}
	return r, nil
}

// observe takes in a publication that was read at a local time. The caller has locked mu.
func (c *clock) observe(kv *mvccpb.KeyValue, v *clockValue, local int64) {
	another := kv.CreateRevision != c.created || v.epoch != c.value.epoch
	switch {
	case another:
		c.created, c.judging, c.generation, c.anchored = kv.CreateRevision, v.at-local, 0, false
	case kv.ModRevision <= c.revision:
		return
	case v.generation != c.value.generation:
		c.judging = v.at - local
	default:
		c.judging = max(c.judging, v.at-local)
	}
	c.value, c.revision = *v, kv.ModRevision
	if v.at > local+c.leasing {
		c.anchored = false // this process's clock has stood still
	}
}

// get reads the clock.
func (c *clock) get(ctx context.Context) (clockValue, error) {
	got, err := request(ctx, c.cluster, func(ctx context.Context) (*clientv3.GetResponse, error) { return c.client.Get(ctx, c.key) })
	if err != nil {
		return clockValue{}, err
	}
	if _, err := c.read(first(got)); err != nil {
		return clockValue{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, nil
}

// A leaseClock is when a lease begins: at an instant, as long as the key of the clock has the
// creation revision and shows nothing much later.
type leaseClock struct{ now, created int64 }

// forLeases returns the clock by which leases begin.
func (c *clock) forLeases(ctx context.Context) (leaseClock, error) {
	if now, ok := c.anchoredNow(); ok {
		return now, nil
	}
	if err := c.begin(ctx); err != nil {
		return leaseClock{}, err
	}
	now, ok := c.anchoredNow()
	if !ok {
		return leaseClock{}, errConflict
	}
	return now, nil
}

// anchoredNow returns the clock by which leases begin, if the process has begun a generation.
func (c *clock) anchoredNow() (l leaseClock, ok bool) {
	local, now := c.local(), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	// Suspending a machine stops its monotonic clock.
	if now.Round(0).Sub(c.anchor.Round(0)) > now.Sub(c.anchor)+suspended {
		c.anchored = false
	}
	return leaseClock{now: local + c.leasing, created: c.created}, c.anchored
}

// begin begins a generation.
func (c *clock) begin(ctx context.Context) error {
	c.publishing.Lock()
	defer c.publishing.Unlock()
	if _, ok := c.anchoredNow(); ok {
		return nil
	}
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.generation = 0
	c.mu.Unlock()
	return c.publish(ctx, 0)
}

// catchUp reads the clock, and adds what has passed since its publication by the clock of
// the cluster's leader: the time to live of a lease, which a publication renews.
func (c *clock) catchUp(ctx context.Context) error {
	v, err := c.get(ctx)
	if err != nil {
		return err
	}
	left, err := request(ctx, c.cluster, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return c.client.TimeToLive(ctx, v.lease)
	})
	if err != nil {
		return err
	}
	local := c.local()
	if left.TTL <= 0 {
		return nil // the lease is gone
	}
	// Its time to live is rounded down to seconds, and a new leader restarts it.
	passed := max(left.GrantedTTL-left.TTL-1, 0) * time.Second.Microseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.value == v {
		c.judging = max(c.judging, v.at+passed-local)
	}
	return nil
}

// ended publishes the clock, so that it shows an instant that has come for this process. It
// returns errConflict if the instant may not have come.
func (c *clock) ended(ctx context.Context, at int64) error {
	c.publishing.Lock()
	defer c.publishing.Unlock()
	return c.publish(ctx, at)
}

// publish publishes the clock, unless it shows less than an instant. The caller has locked
// publishing.
func (c *clock) publish(ctx context.Context, least int64) error {
	c.mu.Lock()
	last, next, created, revision, own := c.value, c.value, c.created, c.revision, c.generation == c.value.generation && c.anchored
	local, now := c.local(), time.Now()
	next.at = max(local+c.judging, next.at)
	c.mu.Unlock()
	switch {
	case next.at < least:
		return errConflict
	case !own:
		next.generation++
	}
	// The lease is renewed after the clock was read, so what passes by it has passed since.
	lease, err := c.renewed(ctx, next.lease)
	if err != nil {
		return err
	}
	next.lease = lease
	r, err := request(ctx, c.cluster, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.client.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(c.key), "=", created),
			clientv3.Compare(clientv3.ModRevision(c.key), "=", revision),
			clientv3.Compare(clientv3.Value(c.key), "=", last.encode()), // another cluster may have the same revisions
		).Then(clientv3.OpPut(c.key, next.encode())).Else(clientv3.OpGet(c.key)).Commit()
	})
	if err != nil {
		return err
	}
	if !r.Succeeded {
		if _, err := c.read(read(r, 0)); err != nil {
			return err
		}
		return errConflict
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.created != created || c.revision > r.Header.Revision {
		return nil
	}
	exact := next.at - local
	c.value, c.revision, c.generation = next, r.Header.Revision, next.generation
	c.judging = exact
	if own {
		return nil
	}
	if !c.anchored || c.leasing-exact > ahead.Microseconds() {
		c.leasing, c.anchored, c.anchor = exact, true, now
	}
	return nil
}

// renewed renews the clock's lease, or grants another if it is gone.
func (c *clock) renewed(ctx context.Context, id clientv3.LeaseID) (clientv3.LeaseID, error) {
	_, err := request(ctx, c.cluster, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		return c.client.KeepAliveOnce(ctx, id)
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return c.lease(ctx)
	}
	return id, err
}

func (c *clock) lease(ctx context.Context) (clientv3.LeaseID, error) {
	r, err := request(ctx, c.cluster, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) { return c.client.Grant(ctx, countdown) })
	if err != nil {
		return 0, err
	}
	return r.ID, nil
}

// isStale reports whether the clock was published long ago.
func (c *clock) isStale() bool {
	local := c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	return local+c.judging-c.value.at > fresh.Microseconds()
}

// create makes the key of the clock, and reports whether it was missing and it may be made.
func (c *clock) create(ctx context.Context) (made bool, err error) {
	if _, err := c.get(ctx); !errors.Is(err, ErrForgotten) {
		return false, err
	}
	v := clockValue{at: max(time.Now().UnixMicro(), 1), generation: 1}
	rand.Read(v.epoch[:])
	if v.lease, err = c.lease(ctx); err != nil {
		return false, err
	}
	r, err := request(ctx, c.cluster, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0)).
			Then(clientv3.OpPut(c.key, v.encode())).Commit()
	})
	return err == nil && r.Succeeded || doubtful(err), err
}
