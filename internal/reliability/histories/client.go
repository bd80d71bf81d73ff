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

// A Job makes a process's clients call the store with a key.
type Job struct {
	Key      string
	Seed     uint64
	Clients  []int // their numbers
	Calls    int   // of each
	NoExpiry bool  // no record expires soon
	Cancels  bool  // some calls' contexts end early
}

const (
	long        = 10 * time.Minute // a lease or keep that outlasts the history
	short       = 40 * time.Millisecond
	callTimeout = 20 * time.Second // the timeout of a call
	maxDoubtful = 1                // calls in doubt after which a client ends: each may take effect at any time, in any order
)

// A client calls the store with one key. The seed determines its choices, and the results of
// its earlier calls the holds and records to which it applies them.
type client struct {
	db       Database
	job      Job
	number   int
	rng      *rand.Rand
	workload workload
	note     func(number, n int, c *Call, o *Outcome)

	n        int
	doubt    int
	current  onlyonce.Hold // the last hold that was granted; Owner is empty if there is none
	previous onlyonce.Hold // the hold before that
	last     *Call         // the last claim
	seen     *SeenRecord   // the last record that a call returned
}

// A workload determines how often the clients of a key make each kind of call.
type workload struct {
	weights          map[Kind]int
	shortLeases      int // of ten leases
	shortKeeps       int // of ten keeps
	pauses           bool
	fingerprintCount int // number of fingerprints in use
}

var workloads = []workload{
	{map[Kind]int{Claim: 6, Settle: 4, Renew: 2, Lookup: 2, Purge: 1, Resolve: 1}, 0, 0, false, 1},                                           // many claims of a command that runs once
	{map[Kind]int{Claim: 6, Settle: 3, Renew: 3, Lookup: 2, SettleTx: 1, Purge: 1}, 8, 2, true, 1},                                           // leases lapse
	{map[Kind]int{Claim: 5, Settle: 4, Lookup: 2, RunTx: 2, Purge: 2, Remove: 1}, 2, 8, true, 1},                                             // records expire
	{map[Kind]int{Claim: 5, Settle: 3, Lookup: 2, Resolve: 3, Remove: 2, RunTx: 1}, 5, 1, true, 1},                                           // a person decides
	{map[Kind]int{Claim: 2, RunTx: 6, SettleTx: 3, Rows: 2, Lookup: 1, Settle: 1, Purge: 1}, 2, 3, false, 1},                                 // transactions
	{map[Kind]int{Claim: 5, RunTx: 2, Settle: 3, Lookup: 2, Renew: 1}, 3, 2, false, 3},                                                       // different requests under one key
	{map[Kind]int{Claim: 4, RunTx: 3, SettleTx: 2, Settle: 3, Renew: 2, Lookup: 2, Resolve: 1, Remove: 1, Purge: 1, Rows: 1}, 5, 5, true, 2}, // a mixture
}

// seeded returns the source of random choices for a name.
func seeded(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func newClient(db Database, job Job, number int, note func(number, n int, c *Call, o *Outcome)) *client {
	workload := workloads[seeded(job.Seed, job.Key).IntN(len(workloads))]
	if job.NoExpiry {
		workload.shortKeeps = 0
	}
	return &client{db: db, job: job, number: number, rng: seeded(job.Seed, fmt.Sprint(job.Key, " ", number)), workload: workload, note: note}
}

func (c *client) run() {
	for c.n = 1; c.n <= c.job.Calls && c.doubt < maxDoubtful; c.n++ {
		if c.workload.pauses {
			time.Sleep(time.Duration(c.rng.Int64N(int64(short))) / 2)
		}
		call, pause := c.choose(), time.Duration(c.rng.Int64N(int64(3*time.Millisecond)))
		limit := callTimeout
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

// learn stores the result of a call.
func (c *client) learn(call *Call, o *Outcome) {
	if call.Kind == Claim || call.Kind == RunTx {
		c.last = call
	}
	if o.Verdict == Doubt && call.Kind.changes() {
		c.doubt++
		time.Sleep(time.Duration(c.rng.Int64N(int64(20 * time.Millisecond)))) // a server that failed may come back
	}
	if o.Record == nil || o.Record.Busy {
		return
	}
	c.seen = o.Record
	if o.Record.Owner != "" && o.Record.Owner == call.Owner && o.Record.State == onlyonce.StateProcessing && call.Kind == Claim {
		c.previous = c.current
		c.current = onlyonce.Hold{Owner: call.Owner, Fence: o.Record.Fence}
	}
}

// choose returns the next call. The number of random choices does not depend on the results
// of earlier calls.
func (c *client) choose() *Call {
	kind, variant := c.kind(), c.rng.IntN(40)
	call := &Call{Kind: kind, Fingerprint: min(1, c.rng.IntN(8))}
	if p := c.rng.IntN(c.workload.fingerprintCount); p > 0 && call.Fingerprint > 0 {
		call.Fingerprint += p
	}
	call.RetryFailed, call.TakeUnknown = c.rng.IntN(3) > 0, c.rng.IntN(3) > 0
	call.Lease = c.pick(c.workload.shortLeases, short, long)
	call.Text = fmt.Sprintf("c%dn%d", c.number, c.n)
	ending, step := c.rng.IntN(8), c.rng.IntN(2) == 0
	c.settlement(call)
	if needsHold := kind == Renew || kind == Settle || kind == SettleTx; needsHold && !c.setHold(call, variant) {
		call.Kind = Claim
	}
	switch call.Kind {
	case Claim, RunTx:
		call.Owner = fmt.Sprintf("%-16.16s", fmt.Sprintf("%d.%d %s", c.number, c.n, c.job.Key))
		if variant < 2 && c.last != nil { // repeats its last claim, as after a lost response
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
		call.Fence, call.SeenState = c.seen.Fence, c.seen.State
		if variant == 0 {
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

// kind returns a random kind of call, by the weights.
func (c *client) kind() Kind {
	kinds := [...]Kind{Claim, Renew, Settle, RunTx, SettleTx, Lookup, Resolve, Remove, Purge, Rows}
	sum := 0
	for _, k := range kinds {
		sum += c.workload.weights[k]
	}
	n := c.rng.IntN(sum)
	for _, k := range kinds {
		if n -= c.workload.weights[k]; n < 0 {
			return k
		}
	}
	return Claim
}

// setHold gives the call a hold, usually the client's own, and reports whether there is one.
func (c *client) setHold(call *Call, variant int) bool {
	call.Owner, call.Fence = c.current.Owner, c.current.Fence
	switch {
	case variant < 3: // its previous hold
		call.Owner, call.Fence = c.previous.Owner, c.previous.Fence
	case variant == 3:
		call.Fence--
	}
	return call.Owner != ""
}

// settlement gives the call a random settlement.
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
	call.Keep = c.pick(c.workload.shortKeeps, short, long)
	if c.rng.IntN(8) == 0 {
		call.Keep = 0
	}
	if call.Kind == Remove {
		call.State = ""
	} else if call.Kind == Resolve && call.State == "" {
		call.State = onlyonce.StateCompleted
	}
}

// pick returns a in n of ten cases, and otherwise b.
func (c *client) pick(n int, a, b time.Duration) time.Duration {
	if c.rng.IntN(10) < n {
		return a
	}
	return b
}
