package queuetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

const (
	producers = 6
	perWriter = 40
	relays    = 4
	keys      = 5
)

var raceRules = []rule{
	{"producers and relays at the same time lose nothing, and no key has two owners", func(t *queueTest) {
		r := &race{queueTest: t, leased: make(map[string]string), got: make(map[string][]string)}
		r.run()
		r.check()
	}},
	{"relays publish everything, in order per key, while others lose their leases", func(t *queueTest) {
		r := &race{queueTest: t, leased: make(map[string]string), got: make(map[string][]string), forgets: true}
		r.run()
		r.check()
	}},
}

// A race has producers that commit after random times, and owners that lease
// and settle.
type race struct {
	*queueTest
	forgets bool // some owners let their leases lapse: they died

	produced atomic.Int64
	mu       sync.Mutex
	leased   map[string]string   // key to owner
	got      map[string][]string // key to payloads, as they were settled
	total    int
}

func (r *race) run() {
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() { r.produce(p) })
	}
	done := make(chan struct{})
	var owners sync.WaitGroup
	for range relays {
		owners.Go(func() { r.relay(done) })
	}
	all.Wait()
	for end := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
		lag, err := r.Queue.Lag(r.Context())
		if err != nil || time.Now().After(end) {
			r.Errorf("%d messages still wait, %v", lag.Waiting, err)
			break
		}
		if lag.Waiting == 0 {
			break
		}
	}
	close(done)
	owners.Wait()
}

// produce appends messages, each in a transaction of its own that stays open
// for a while. Those of one producer and key come one after another.
func (r *race) produce(p int) {
	for i := range perWriter {
		tx, err := r.Begin(r.Context())
		if err == nil {
			err = tx.Append(r.Context(), message(fmt.Sprintf("%d/%d", p, i%keys), fmt.Sprintf("%04d", i)))
		}
		if err == nil {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			err = tx.Commit()
		}
		if err != nil {
			r.Error(err)
			return
		}
		r.produced.Add(1)
	}
}

func (r *race) relay(done chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		default:
		}
		owner, dies := outbox.NewID(), r.forgets && n%5 == 0
		lease := long
		if dies {
			lease = 5 * time.Millisecond
		}
		list, err := r.Queue.Lease(r.Context(), owner, lease, 7)
		if err != nil {
			r.Error(err)
			return
		}
		if len(list) == 0 {
			time.Sleep(time.Millisecond)
		}
		if !dies && len(list) > 0 {
			r.publish(owner, list)
		}
	}
}

func (r *race) publish(owner string, list []outbox.Entry) {
	r.mu.Lock()
	for _, e := range list {
		if other := r.leased[e.Key]; other != "" && other != owner {
			r.Errorf("the key %s has two owners", e.Key)
		}
		r.leased[e.Key] = owner
	}
	r.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	r.mu.Lock()
	for _, e := range list {
		r.got[e.Key] = append(r.got[e.Key], string(e.Payload))
		delete(r.leased, e.Key)
		r.total++
	}
	r.mu.Unlock()
	if err := r.settle(owner, published, list...); err != nil {
		r.Error(err)
	}
}

func (r *race) check() {
	if want := producers * perWriter; r.total != want || int(r.produced.Load()) != want {
		r.Errorf("%d messages published of %d appended, want %d", r.total, r.produced.Load(), want)
	}
	for key, list := range r.got {
		if !slices.IsSorted(list) {
			r.Errorf("the messages of the key %s came as %v", key, list)
		}
	}
}
