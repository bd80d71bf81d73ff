//go:build linux

package histories

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Job tells a process's clients to call with a key.
type Job struct {
	Key      string
	Seed     uint64
	Clients  []int // the numbers of the process's
	Calls    int   // of each
	NoExpiry bool  // no record expires soon
	Cancels  bool  // now and then a call's context ends early
}

const (
	long    = 10 * time.Minute // a lease or keep that outlasts the history
	short   = 40 * time.Millisecond
	patient = 20 * time.Second // how long a call may take
	doubts  = 1                // calls in doubt, after which a client ends: each may come at any time, in any order
)

// A client calls with one key. All its choices come from the seed, but what
// they are applied to is what it was told before.
type client struct {
	db     Database
	job    Job
	number int
	rng    *rand.Rand
	taste  taste
	note   func(number, n int, c *Call, o *Outcome)

	n      int
	doubt  int
	mine   onlyonce.Hold // the last that was granted; none: Owner is empty
	former onlyonce.Hold // the one before
	last   *Call         // the last claim
	seen   *Seen         // the last record that it was shown
}

// A taste says how often the clients of a key do what.
type taste struct {
	weights map[Kind]int
	short   int // of ten leases
	brief   int // of ten keeps
	pauses  bool
	prints  int // how many fingerprints they use
}

var tastes = []taste{
	{map[Kind]int{Claim: 6, Settle: 4, Renew: 2, Lookup: 2, Purge: 1, Resolve: 1}, 0, 0, false, 1},                                           // many want a command that runs once
	{map[Kind]int{Claim: 6, Settle: 3, Renew: 3, Lookup: 2, SettleTx: 1, Purge: 1}, 8, 2, true, 1},                                           // leases lapse
	{map[Kind]int{Claim: 5, Settle: 4, Lookup: 2, RunTx: 2, Purge: 2, Remove: 1}, 2, 8, true, 1},                                             // records expire
	{map[Kind]int{Claim: 5, Settle: 3, Lookup: 2, Resolve: 3, Remove: 2, RunTx: 1}, 5, 1, true, 1},                                           // a person decides
	{map[Kind]int{Claim: 2, RunTx: 6, SettleTx: 3, Rows: 2, Lookup: 1, Settle: 1, Purge: 1}, 2, 3, false, 1},                                 // transactions
	{map[Kind]int{Claim: 5, RunTx: 2, Settle: 3, Lookup: 2, Renew: 1}, 3, 2, false, 3},                                                       // different requests under one key
	{map[Kind]int{Claim: 4, RunTx: 3, SettleTx: 2, Settle: 3, Renew: 2, Lookup: 2, Resolve: 1, Remove: 1, Purge: 1, Rows: 1}, 5, 5, true, 2}, // all of it
}

// seeded returns the source of the choices that belong to the name.
func seeded(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func newClient(db Database, job Job, number int, note func(number, n int, c *Call, o *Outcome)) *client {
	taste := tastes[seeded(job.Seed, job.Key).IntN(len(tastes))]
	if job.NoExpiry {
		taste.brief = 0
	}
	return &client{db: db, job: job, number: number, rng: seeded(job.Seed, fmt.Sprint(job.Key, " ", number)), taste: taste, note: note}
}

func (c *client) run() {
	for c.n = 1; c.n <= c.job.Calls && c.doubt < doubts; c.n++ {
		if c.taste.pauses {
			time.Sleep(time.Duration(c.rng.Int64N(int64(short))) / 2)
		}
		call, pause := c.choose(), time.Duration(c.rng.Int64N(int64(3*time.Millisecond)))
		limit := patient
		if c.rng.IntN(40) == 0 && c.job.Cancels {
			limit = time.Duration(c.rng.Int64N(int64(5 * time.Millisecond)))
		}
		c.call(call, pause, limit)
	}
}

func (c *client) call(call *Call, pause, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	call.Client, call.N = c.number, c.n
	call.Start = now()
	c.note(c.number, c.n, call, nil)
	o := do(ctx, c.db, c.job.Key, call, pause)
	c.note(c.number, c.n, nil, o)
	c.learn(call, o)
}

// learn remembers what a call was told.
func (c *client) learn(call *Call, o *Outcome) {
	if call.Kind == Claim || call.Kind == RunTx {
		c.last = call
	}
	if o.Verdict == Doubt && call.Kind.changes() {
		c.doubt++
		time.Sleep(time.Duration(c.rng.Int64N(int64(20 * time.Millisecond)))) // what failed may come back
	}
	if o.Record == nil || o.Record.Busy {
		return
	}
	c.seen = o.Record
	if o.Record.Owner != "" && o.Record.Owner == call.Owner && o.Record.State == onlyonce.StateProcessing && call.Kind == Claim {
		c.former = c.mine
		c.mine = onlyonce.Hold{Owner: call.Owner, Fence: o.Record.Fence}
	}
}

// choose returns the next call. The number of choices drawn does not depend on
// what the client was told.
func (c *client) choose() *Call {
	kind, some := c.kind(), c.rng.IntN(40)
	call := &Call{Kind: kind, Fingerprint: min(1, c.rng.IntN(8))}
	if p := c.rng.IntN(c.taste.prints); p > 0 && call.Fingerprint > 0 {
		call.Fingerprint += p
	}
	call.RetryFailed, call.TakeUnknown = c.rng.IntN(3) > 0, c.rng.IntN(3) > 0
	call.Lease = c.either(c.taste.short, short, long)
	call.Text = fmt.Sprintf("c%dn%d", c.number, c.n)
	ending, step := c.rng.IntN(8), c.rng.IntN(2) == 0
	c.settlement(call)
	if holds := kind == Renew || kind == Settle || kind == SettleTx; holds && !c.hold(call, some) {
		call.Kind = Claim
	}
	switch call.Kind {
	case Claim, RunTx:
		call.Owner = fmt.Sprintf("%-16.16s", fmt.Sprintf("%d.%d %s", c.number, c.n, c.job.Key))
		if some < 2 && c.last != nil { // repeats its last claim, as after a lost response
			row := call.Text
			repeat := *c.last
			repeat.Text, repeat.Row = row, ""
			call = &repeat
		}
	case Renew:
		if step {
			call.Step = call.Text
		}
	case Resolve, Remove:
		if c.seen == nil {
			call.Kind = Lookup
			break
		}
		call.Fence, call.Saw = c.seen.Fence, c.seen.State
		if some == 0 {
			call.Fence++
		}
	}
	if call.Kind == RunTx || call.Kind == SettleTx {
		call.Row = call.Text
		call.Ending = [...]Ending{Commits, Commits, Commits, Commits, Commits, Fails, GivesUp, Panicked}[ending]
		if call.Ending == Fails && call.State == "" {
			call.Ending = GivesUp
		}
	}
	return call
}

// kind draws one by the weights.
func (c *client) kind() Kind {
	kinds := [...]Kind{Claim, Renew, Settle, RunTx, SettleTx, Lookup, Resolve, Remove, Purge, Rows}
	sum := 0
	for _, k := range kinds {
		sum += c.taste.weights[k]
	}
	n := c.rng.IntN(sum)
	for _, k := range kinds {
		if n -= c.taste.weights[k]; n < 0 {
			return k
		}
	}
	return Claim
}

// hold gives the call a hold, mostly the client's own, and reports whether
// there is one.
func (c *client) hold(call *Call, some int) bool {
	call.Owner, call.Fence = c.mine.Owner, c.mine.Fence
	switch {
	case some < 3: // one that it had before
		call.Owner, call.Fence = c.former.Owner, c.former.Fence
	case some == 3:
		call.Fence--
	}
	return call.Owner != ""
}

// settlement draws how the call would settle.
func (c *client) settlement(call *Call) {
	switch c.rng.IntN(10) {
	case 0, 1:
		call.State = onlyonce.StateFailed
	case 2:
		call.State, call.Final = onlyonce.StateFailed, true
	case 3, 4:
		call.State = onlyonce.StateUnknown
	case 5:
		// released
	default:
		call.State = onlyonce.StateCompleted
	}
	call.Keep = c.either(c.taste.brief, short, long)
	if c.rng.IntN(8) == 0 {
		call.Keep = 0
	}
	if call.Kind == Remove {
		call.State = ""
	} else if call.Kind == Resolve && call.State == "" {
		call.State = onlyonce.StateCompleted
	}
}

// either draws a in n cases of ten, and otherwise b.
func (c *client) either(n int, a, b time.Duration) time.Duration {
	if c.rng.IntN(10) < n {
		return a
	}
	return b
}
