package queuetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

var modelRules = []rule{
	{"whatever relays do with long lines of messages, nothing is lost, overtaken or left behind", func(t *queueTest) {
		m := &model{queueTest: t, rand: rand.New(rand.NewPCG(17, 0)), live: make(map[string][]*modeled)}
		for range 40 {
			m.step()
		}
		m.drain()
	}},
}

// A model is the expected content of a queue after random steps. It asks for no more than the contract,
// and knows no time: a short lease may have lapsed or not.
type model struct {
	*queueTest
	rand   *rand.Rand
	number int                   // of the message that was appended last
	live   map[string][]*modeled // by key, in their order
	open   Tx                    // has appended late, and is not committed
	late   []*modeled            // messages that open has appended
	leases []modeledLease
}

// A modeled message is one that is not yet published.
type modeled struct {
	number int
	key    string
	owner  string // that may settle it
	state  modeledState
}

type modeledState int

const (
	waiting modeledState = iota
	lapsing              // held for a short time
	held
	parked
)

type modeledLease struct {
	owner   string
	entries []outbox.Entry
}

func (m *model) step() {
	switch m.rand.IntN(12) {
	case 0, 1:
		m.append()
	case 2:
		m.appendLate()
	case 3, 4, 5:
		m.settleOne()
	case 6:
		m.decide()
	default:
		d := []time.Duration{time.Microsecond, long}[m.rand.IntN(2)]
		n := m.leaseSome(d)
		if n == 0 {
			n = m.leaseSome(d) // the first may only have made messages wait again
		}
		if n == 0 {
			m.nothingLeft()
		}
	}
	m.checkLag()
}

// messages makes a line of messages with one key.
func (m *model) messages(n int) (list []outbox.Message, all []*modeled) {
	key := []string{"", "a", "b", "c"}[m.rand.IntN(4)]
	for range n {
		m.number++
		list = append(list, message(key, fmt.Sprint(m.number)))
		all = append(all, &modeled{number: m.number, key: key})
	}
	return list, all
}

func (m *model) append() {
	if m.open != nil && m.OneWriter {
		m.commitLate()
	}
	list, all := m.messages([]int{3, 40, 700}[m.rand.IntN(3)])
	m.add(list...)
	m.committed(all)
}

// appendLate appends in a transaction that commits later.
func (m *model) appendLate() {
	if m.open != nil {
		m.commitLate()
		return
	}
	if m.OneWriter {
		return
	}
	list, all := m.messages(20)
	tx, err := m.Begin(m.Context())
	m.must(err)
	m.must(tx.Append(m.Context(), list...))
	m.open, m.late = tx, all
}

func (m *model) commitLate() {
	m.must(m.open.Commit())
	m.committed(m.late)
	m.open, m.late = nil, nil
}

func (m *model) committed(all []*modeled) {
	key := all[0].key
	m.live[key] = append(m.live[key], all...)
	slices.SortFunc(m.live[key], func(a, b *modeled) int { return a.number - b.number })
}

func (m *model) find(e outbox.Entry) (*modeled, int) {
	number, err := strconv.Atoi(string(e.Payload))
	m.must(err)
	list := m.live[e.Key]
	if i, ok := slices.BinarySearchFunc(list, number, func(x *modeled, n int) int { return x.number - n }); ok {
		return list[i], i
	}
	return nil, 0
}

// leaseSome leases, and wants the oldest messages of keys that nobody has.
func (m *model) leaseSome(d time.Duration) int {
	owner := outbox.NewID()
	list := m.lease(owner, d, []int{1, 16, 170, 500}[m.rand.IntN(4)])
	next := make(map[string]int)
	for _, e := range list {
		x, at := m.find(e)
		if x == nil {
			m.Fatalf("leased %s of %q, which is not in the queue", e.Payload, e.Key)
		}
		if e.Key != "" && at != next[e.Key] {
			m.Fatalf("leased %s of %q, which has overtaken %d", e.Payload, e.Key, m.live[e.Key][next[e.Key]].number)
		}
		next[e.Key]++
		x.lease(m.Fatalf, owner, d)
	}
	for key, n := range next {
		if key == "" {
			continue
		}
		for _, x := range m.live[key][n:] { // no message of the key was held
			if x.state > lapsing {
				m.Fatalf("leased messages of %q, of which %d is held or parked", key, x.number)
			}
			x.state = waiting
		}
	}
	if len(list) > 0 {
		m.leases = append(m.leases, modeledLease{owner, list})
	}
	return len(list)
}

func (x *modeled) lease(fatalf func(string, ...any), owner string, d time.Duration) {
	if x.state > lapsing {
		fatalf("leased %d of %q, which is held or parked", x.number, x.key)
	}
	x.owner, x.state = owner, held
	if d < long {
		x.state = lapsing
	}
}

// settleOne settles a lease, which may have lapsed.
func (m *model) settleOne() {
	if len(m.leases) == 0 {
		return
	}
	i := m.rand.IntN(len(m.leases))
	l := m.leases[i]
	m.leases = slices.Delete(m.leases, i, i+1)
	failed := m.rand.IntN(2 * len(l.entries)) // the message that fails, if there is one of this number
	then := []outbox.Verdict{{State: outbox.StateParked}, {State: outbox.StateWaiting, After: time.Microsecond}, {State: outbox.StateWaiting}}[m.rand.IntN(3)]
	var all []outbox.Verdict
	lost := false
	for i, e := range l.entries {
		v := published
		if i == failed {
			v = then
		} else if i > failed {
			v = outbox.Verdict{State: outbox.StateWaiting}
		}
		v.Seq = e.Seq
		all = append(all, v)
		x, at := m.find(e)
		if x == nil || x.owner != l.owner {
			lost = true
			continue
		}
		x.owner, x.state = "", waiting
		switch {
		case v.State == outbox.StatePublished:
			m.live[e.Key] = slices.Delete(m.live[e.Key], at, at+1)
		case v.State == outbox.StateParked:
			x.state = parked
		case v.After > 0:
			x.state = lapsing
		}
	}
	if err := m.Queue.Settle(m.Context(), l.owner, all); errors.Is(err, outbox.ErrLost) != lost || !lost && err != nil {
		m.Fatalf("settled with %v, want lost: %v", err, lost)
	}
}

// decide requeues or discards the parked messages.
func (m *model) decide() {
	list, err := m.Queue.Parked(m.Context(), 0, 1000)
	m.must(err)
	for _, e := range list {
		x, at := m.find(e)
		if x == nil || x.state != parked {
			m.Fatalf("%s of %q is parked", e.Payload, e.Key)
		}
		if m.rand.IntN(2) == 0 {
			m.count(m.Queue.Requeue(m.Context(), e.Seq))(1)
			x.state = waiting
		} else {
			m.count(m.Queue.Discard(m.Context(), e.Seq))(1)
			m.live[e.Key] = slices.Delete(m.live[e.Key], at, at+1)
		}
	}
}

// nothingLeft wants no key of which messages wait and none is held or parked.
func (m *model) nothingLeft() {
	for key, list := range m.live {
		busy := slices.ContainsFunc(list, func(x *modeled) bool { return x.state != waiting })
		if key == "" {
			busy = !slices.ContainsFunc(list, func(x *modeled) bool { return x.state == waiting })
		}
		if len(list) > 0 && !busy {
			m.Fatalf("leased nothing, although %d messages of %q wait", len(list), key)
		}
	}
}

func (m *model) checkLag() {
	wait, park := 0, 0
	for _, list := range m.live {
		for _, x := range list {
			if x.state == parked {
				park++
			} else {
				wait++
			}
		}
	}
	m.wantLag(wait, park)
}

// drain publishes everything.
func (m *model) drain() {
	if m.open != nil {
		m.commitLate()
	}
	m.until("everything is published", func() bool {
		m.decide()
		for len(m.leases) > 0 {
			m.settleOne()
		}
		m.leaseSome(long)
		m.checkLag()
		lag, err := m.Queue.Lag(m.Context())
		m.must(err)
		return lag.Waiting+lag.Parked == 0
	})
}
