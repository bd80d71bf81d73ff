//go:build linux

// Package rounds sends commands through the library while the server of their store is
// killed and its connections are cut, round after round, and compares what was answered
// with what was done.
package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A Store has the methods that the commands need.
type Store interface {
	onlyonce.Store
	onlyonce.Resolver
}

// A System is the servers of a store, which fail.
type System interface {
	// Open returns a store with connections of its own, on the ways to the servers.
	Open(ctx context.Context, ways *Ways) (s Store, shut func(), err error)

	// Kill kills the server that leads, and returns once another has taken its place or it
	// has come back, and nothing is missing that the next kill needs.
	Kill(ctx context.Context, rng *rand.Rand) error

	// Close ends the servers.
	Close() error
}

// A Plan says how a store is tried.
type Plan struct {
	Name   string
	Seed   uint64
	System System
	Rounds int
}

// A Report is what became of it.
type Report struct {
	Name     string
	Seed     uint64
	Rounds   int
	Commands int
	Asked    int64
	Kills    int // of servers
	Cuts     int // of connections, in the middle of what was sent
	Held     int // commands whose outcome nobody knew
	Unstored int // responses that could not be recorded

	// Lost counts commands that got a response and are not in the log, or whose record is
	// gone or no longer completed. Doubled counts those that are in the log more than
	// once. Differing counts those with responses that differ from each other, or from the
	// log.
	Lost, Doubled, Differing int

	Wrong []string // the first things that are wrong, in words
	Took  time.Duration
}

const (
	stores   = 3 // that call the servers, each with connections of its own
	pairs    = 8 // of clients; both send the same commands
	cutsEach = 3 // in a round

	// lease is that of every attempt. An attempt of unknown outcome is held when it ends.
	lease = 2 * time.Second

	// enough is how many commands get a response between two kills.
	enough = 200

	// patience is how long a client asks for one command, and a fault may take.
	patience = 3 * time.Minute
)

// A run is a plan that is being carried out.
type run struct {
	Plan
	ways     *Ways
	stores   []Store
	guards   []*onlyonce.Guard
	unstored sync.Map // keys whose response was given and could not be recorded
	over     atomic.Bool
	asked    atomic.Int64
	answered atomic.Int64

	mu       sync.Mutex
	commands map[string]*command
	log      map[string][]string // what was done, outside the store: the tokens of each command
	failure  error
}

// A command is what its clients were told.
type command struct {
	first  string // the token of the first response
	held   bool
	differ []string
}

// Do carries out the plan.
func Do(p Plan) (*Report, error) {
	began := time.Now()
	r := &run{Plan: p, ways: NewWays(), commands: make(map[string]*command), log: make(map[string][]string)}
	defer r.ways.Close()
	report := &Report{Name: p.Name, Seed: p.Seed, Rounds: p.Rounds}
	shut, err := r.open()
	defer func() { shut() }()
	if err != nil {
		return nil, err
	}
	var clients sync.WaitGroup
	for n := range 2 * pairs {
		clients.Go(func() { r.client(n) })
	}
	err = r.rounds(report)
	r.over.Store(true)
	clients.Wait()
	if err = errors.Join(err, r.failure); err != nil {
		return nil, err
	}
	shut()
	if shut, err = r.open(); err == nil {
		err = r.compare(report)
	}
	report.Commands, report.Asked, report.Took = len(r.commands), r.asked.Load(), time.Since(began)
	return report, err
}

// open opens the stores, until their servers respond.
func (r *run) open() (shut func(), err error) {
	r.stores, r.guards = nil, nil
	var all []func()
	shut = func() {
		for _, f := range all {
			f()
		}
		all = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range stores {
		s, f, err := r.System.Open(ctx, r.ways)
		for err != nil && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			s, f, err = r.System.Open(ctx, r.ways)
		}
		if err != nil {
			return shut, fmt.Errorf("open: %w", err)
		}
		all = append(all, f)
		r.stores = append(r.stores, s)
		r.guards = append(r.guards, onlyonce.New(s, onlyonce.Config{Lease: lease, HoldUnknown: true, Observer: r.observe}))
	}
	return shut, nil
}

// observe notes the responses that could not be recorded.
func (r *run) observe(_ context.Context, e onlyonce.Event) {
	if e.Outcome == onlyonce.OutcomeUnrecorded || e.Outcome == onlyonce.OutcomeLost {
		r.unstored.Store(e.Record.ID.Key, true)
	}
}

func (r *run) isUnstored(key string) bool {
	_, is := r.unstored.Load(key)
	return is
}

// rounds cuts and kills as often as planned.
func (r *run) rounds(report *Report) error {
	rng := rand.New(rand.NewPCG(r.Seed, 1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Rounds)*patience)
	defer cancel()
	for range r.Rounds {
		for range cutsEach {
			if err := r.ways.cut(ctx, rng); err != nil {
				return err
			}
			report.Cuts++
		}
		for until := r.answered.Load() + enough; r.answered.Load() < until; time.Sleep(time.Millisecond) {
			if r.failed() {
				return nil
			}
		}
		if err := r.System.Kill(ctx, rng); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
		report.Kills++
	}
	return nil
}

func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure != nil
}

// client sends one command after the other. Every command has two clients.
func (r *run) client(number int) {
	for n := 0; !r.over.Load(); n++ {
		key := fmt.Sprintf("%d-%d", number/2, n)
		r.mu.Lock()
		if r.commands[key] == nil {
			r.commands[key] = &command{}
		}
		r.mu.Unlock()
		if _, err := r.until(key); err != nil {
			r.fail(err)
			return
		}
	}
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = errors.Join(r.failure, err)
}

// until asks for a command until it is answered, or held.
func (r *run) until(key string) (held bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		r.asked.Add(1)
		got, err := r.ask(ctx, key)
		held := errors.Is(err, onlyonce.ErrUnknown)
		switch {
		case err == nil, held:
			r.note(key, got, held)
			r.answered.Add(1)
			return held, nil
		case ctx.Err() != nil:
			return false, fmt.Errorf("%s: no response: %w", key, err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
	}
}

// ask runs the command: it enters a token into the log, and returns it.
func (r *run) ask(ctx context.Context, key string) (token string, err error) {
	guard := r.guards[rand.IntN(len(r.guards))]
	got, err := onlyonce.Do(ctx, guard, onlyonce.Request{ID: idOf(key), Fingerprint: onlyonce.Fingerprint([]byte(key))}, func(context.Context) (string, error) {
		time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond)))) // in which a kill loses a claim that was granted
		token := fmt.Sprintf("%s.%x", key, rand.Uint64())
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log[key] = append(r.log[key], token)
		return token, nil
	})
	return got.Value, err
}

func idOf(key string) onlyonce.ID { return onlyonce.ID{Tenant: "rounds", Operation: "pay", Key: key} }

// note notes a response.
func (r *run) note(key, token string, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.commands[key]
	switch {
	case held:
		c.held = true
	case c.first == "":
		c.first = token
	case c.first != token:
		c.differ = append(c.differ, token)
	}
}

// compare looks for every response in the store and in the log, decides what is held as an
// operator would, sends every command once more, and counts.
func (r *run) compare(report *Report) error {
	keys := make(chan string)
	var workers sync.WaitGroup
	for range 2 * pairs {
		workers.Go(func() {
			for key := range keys {
				if err := r.look(report, key); err != nil {
					r.fail(fmt.Errorf("%s: %w", key, err))
				}
			}
		})
	}
	for key := range r.commands { // which grows no more
		keys <- key
	}
	close(keys)
	workers.Wait()
	if r.failure != nil {
		return r.failure
	}
	for key, c := range r.commands {
		tokens := r.log[key]
		switch {
		case len(tokens) > 1:
			report.wrong(&report.Doubled, "%s was answered %q and done %d times: %q", key, c.first, len(tokens), tokens)
		case len(tokens) == 0:
			report.wrong(&report.Lost, "%s was answered %q and not done", key, c.first)
		case c.first != tokens[0]:
			report.wrong(&report.Differing, "%s was answered %q and done as %q", key, c.first, tokens)
		}
		if len(c.differ) > 0 {
			report.wrong(&report.Differing, "%s was answered %q, then %q", key, c.first, c.differ)
		}
		if c.held {
			report.Held++
		}
		if r.isUnstored(key) {
			report.Unstored++
		}
	}
	return nil
}

// look wants the record of a command that was answered to be there, and sends the command
// until it is answered once more.
func (r *run) look(report *Report, key string) error {
	r.mu.Lock()
	first, unstored := r.commands[key].first, r.isUnstored(key)
	r.mu.Unlock()
	if first != "" && !unstored {
		rec, err := r.lookup(key)
		if err != nil {
			return err
		}
		if rec.State != onlyonce.StateCompleted {
			r.mu.Lock()
			report.wrong(&report.Lost, "%s was answered %q, its record has the state %q", key, first, rec.State)
			r.mu.Unlock()
		}
	}
	for {
		held, err := r.until(key)
		if err != nil || !held {
			return err
		}
		if err := r.decide(key); err != nil {
			return err
		}
	}
}

// lookup returns a command's record, which is empty if there is none. It repeats what fails:
// the connections of a store may have been cut.
func (r *run) lookup(key string) (rec onlyonce.Record, err error) {
	for range 20 {
		rec, err = r.stores[0].Lookup(context.Background(), idOf(key))
		if errors.Is(err, onlyonce.ErrNotFound) {
			return onlyonce.Record{}, nil
		}
		if err == nil {
			return rec, nil
		}
	}
	return rec, err
}

// decide ends a command of unknown outcome: if it is in the log it was done, and otherwise
// it starts over.
func (r *run) decide(key string) error {
	rec, err := r.lookup(key)
	if err != nil {
		return err
	}
	r.mu.Lock()
	tokens := slices.Clone(r.log[key])
	r.mu.Unlock()
	var s onlyonce.Settlement
	if len(tokens) > 0 {
		s = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: fmt.Appendf(nil, "%q", tokens[0])}, Keep: time.Hour}
	}
	if err = r.stores[0].Resolve(context.Background(), rec, s); errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) {
		return nil // a call in doubt has taken effect, and the command is looked at again
	}
	return err
}

// wrong counts what is wrong, and says the first of it in words.
func (report *Report) wrong(count *int, format string, args ...any) {
	*count++
	if len(report.Wrong) < 20 {
		report.Wrong = append(report.Wrong, fmt.Sprintf(format, args...))
	}
}

// Ways lead clients to servers, through a cutting proxy before each.
type Ways struct {
	mu      sync.Mutex
	cutters map[string]*faults.CuttingProxy // by the server's address
	order   []string                        // addresses, so that the seed decides
}

// NewWays returns ways to servers that need not be known yet.
func NewWays() *Ways {
	return &Ways{cutters: make(map[string]*faults.CuttingProxy)}
}

// To returns where a client reaches the server of an address.
func (w *Ways) To(address string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.cutters[address]; c != nil {
		return c.Address(), nil
	}
	c, err := faults.NewCuttingProxy(address)
	if err != nil {
		return "", err
	}
	w.cutters[address], w.order = c, append(w.order, address)
	return c.Address(), nil
}

// Close cuts all ways.
func (w *Ways) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.cutters {
		c.Close()
	}
}

// cut cuts a connection after a random number of bytes in one direction.
func (w *Ways) cut(ctx context.Context, rng *rand.Rand) error {
	for ctx.Err() == nil {
		w.mu.Lock()
		c := w.cutters[w.order[rng.IntN(len(w.order))]]
		w.mu.Unlock()
		c.Arm(rng.IntN(2), rng.IntN(4000), rng.IntN(3))
		for end := time.Now().Add(time.Second); time.Now().Before(end) && !c.HasCut(); { // another one if this leads to a server that nobody calls
			time.Sleep(time.Millisecond)
		}
		if c.Disarm() {
			return nil
		}
	}
	return ctx.Err()
}
