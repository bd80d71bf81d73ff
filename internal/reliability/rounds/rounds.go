//go:build linux

// Package rounds sends commands through the library while the server of their store is
// killed and its connections are cut, round after round, and compares the responses with
// the log of what the commands wrote.
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

// A System has the servers of a store, which the test kills.
type System interface {
	// Open returns a store with connections of its own, which go through the proxies.
	Open(ctx context.Context, proxies *Proxies) (s Store, closeStores func(), err error)

	// Kill kills the leading server. It returns once another server has taken its place, or
	// it has been restarted, and the servers are ready for the next kill.
	Kill(ctx context.Context, rng *rand.Rand) error

	// Close ends the servers.
	Close() error
}

// A Plan has the settings of a test of one store.
type Plan struct {
	Name   string
	Seed   uint64
	System System
	Rounds int
}

// A Report is the result of a Plan.
type Report struct {
	Name     string
	Seed     uint64
	Rounds   int
	Commands int
	Sent     int64
	Kills    int // of servers
	Cuts     int // of connections, after a random number of bytes
	Held     int // commands whose outcome is unknown
	Unstored int // responses that could not be recorded

	// Lost counts commands that got a response and are not in the log, or whose record is
	// gone or no longer completed. Doubled counts those that are in the log more than
	// once. Differing counts those with responses that differ from each other, or from the
	// log.
	Lost, Doubled, Differing int

	Findings []string // descriptions of the first errors
	Took     time.Duration
}

const (
	stores   = 3 // that call the servers, each with connections of its own
	pairs    = 8 // of clients; both send the same commands
	cutsEach = 3 // in a round

	// lease is the lease of every attempt. An attempt with an unknown outcome is held when the
	// lease ends.
	lease = 2 * time.Second

	// responsesPerKill is how many commands get a response between two kills.
	responsesPerKill = 200

	// timeout is how long a client repeats one command, and how long a fault may take.
	timeout = 3 * time.Minute
)

// A run executes a Plan.
type run struct {
	Plan
	proxies   *Proxies
	stores    []Store
	guards    []*onlyonce.Guard
	unstored  sync.Map // keys whose response was returned but could not be recorded
	over      atomic.Bool
	sent      atomic.Int64
	responses atomic.Int64

	mu       sync.Mutex
	commands map[string]*command
	log      map[string][]string // the tokens that each command has written, outside the store
	failure  error
}

// A command has the responses that its clients got.
type command struct {
	first  string // the token of the first response
	held   bool
	others []string
}

// Do executes the plan.
func Do(p Plan) (*Report, error) {
	began := time.Now()
	r := &run{Plan: p, proxies: NewProxies(), commands: make(map[string]*command), log: make(map[string][]string)}
	defer r.proxies.Close()
	report := &Report{Name: p.Name, Seed: p.Seed, Rounds: p.Rounds}
	closeStores, err := r.open()
	defer func() { closeStores() }()
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
	closeStores()
	if closeStores, err = r.open(); err == nil {
		err = r.compare(report)
	}
	report.Commands, report.Sent, report.Took = len(r.commands), r.sent.Load(), time.Since(began)
	return report, err
}

// open opens the stores, and repeats that until their servers respond.
func (r *run) open() (closeStores func(), err error) {
	r.stores, r.guards = nil, nil
	var all []func()
	closeStores = func() {
		for _, f := range all {
			f()
		}
		all = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for range stores {
		s, f, err := r.System.Open(ctx, r.proxies)
		for err != nil && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			s, f, err = r.System.Open(ctx, r.proxies)
		}
		if err != nil {
			return closeStores, fmt.Errorf("open: %w", err)
		}
		all = append(all, f)
		r.stores = append(r.stores, s)
		r.guards = append(r.guards, onlyonce.New(s, onlyonce.Config{Lease: lease, HoldUnknown: true, Observer: r.observe}))
	}
	return closeStores, nil
}

// observe stores the keys whose responses could not be recorded.
func (r *run) observe(_ context.Context, e onlyonce.Event) {
	if e.Outcome == onlyonce.OutcomeUnrecorded || e.Outcome == onlyonce.OutcomeLost {
		r.unstored.Store(e.Record.ID.Key, true)
	}
}

func (r *run) isUnstored(key string) bool {
	_, is := r.unstored.Load(key)
	return is
}

// rounds cuts connections and kills servers, as often as planned.
func (r *run) rounds(report *Report) error {
	rng := rand.New(rand.NewPCG(r.Seed, 1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Rounds)*timeout)
	defer cancel()
	for range r.Rounds {
		for range cutsEach {
			if err := r.proxies.cut(ctx, rng); err != nil {
				return err
			}
			report.Cuts++
		}
		for until := r.responses.Load() + responsesPerKill; r.responses.Load() < until; time.Sleep(time.Millisecond) {
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
		if _, err := r.sendUntilResponse(key); err != nil {
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

// sendUntilResponse repeats a command until it gets a response, or the command is held.
func (r *run) sendUntilResponse(key string) (held bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		r.sent.Add(1)
		got, err := r.send(ctx, key)
		held := errors.Is(err, onlyonce.ErrUnknown)
		switch {
		case err == nil, held:
			r.recordResponse(key, got, held)
			r.responses.Add(1)
			return held, nil
		case ctx.Err() != nil:
			return false, fmt.Errorf("%s: no response: %w", key, err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
	}
}

// send runs the command, which writes a token to the log and returns it.
func (r *run) send(ctx context.Context, key string) (token string, err error) {
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

// recordResponse adds a response to its command.
func (r *run) recordResponse(key, token string, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.commands[key]
	switch {
	case held:
		c.held = true
	case c.first == "":
		c.first = token
	case c.first != token:
		c.others = append(c.others, token)
	}
}

// compare looks up every record, resolves the held commands as an operator would, sends every
// command once more, and compares the responses with the log.
func (r *run) compare(report *Report) error {
	keys := make(chan string)
	var workers sync.WaitGroup
	for range 2 * pairs {
		workers.Go(func() {
			for key := range keys {
				if err := r.checkRecord(report, key); err != nil {
					r.fail(fmt.Errorf("%s: %w", key, err))
				}
			}
		})
	}
	for key := range r.commands { // the clients have ended: no key is added
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
			report.addFinding(&report.Doubled, "%s: responded with %q, it ran %d times: %q", key, c.first, len(tokens), tokens)
		case len(tokens) == 0:
			report.addFinding(&report.Lost, "%s: responded with %q, it is not in the log", key, c.first)
		case c.first != tokens[0]:
			report.addFinding(&report.Differing, "%s: responded with %q, the log has %q", key, c.first, tokens)
		}
		if len(c.others) > 0 {
			report.addFinding(&report.Differing, "%s: responded with %q, then %q", key, c.first, c.others)
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

// checkRecord checks that the record of a command that got a response still exists, and sends
// the command until it gets a response once more.
func (r *run) checkRecord(report *Report, key string) error {
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
			report.addFinding(&report.Lost, "%s: responded with %q, its record has the state %q", key, first, rec.State)
			r.mu.Unlock()
		}
	}
	for {
		held, err := r.sendUntilResponse(key)
		if err != nil || !held {
			return err
		}
		if err := r.decide(key); err != nil {
			return err
		}
	}
}

// lookup returns a command's record, which is empty if there is none. It tries again if a
// connection was cut.
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

// decide resolves a command whose outcome is unknown: as completed if it is in the log, and
// otherwise so that it starts over.
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

// addFinding counts an error, and describes the first ones.
func (report *Report) addFinding(count *int, format string, args ...any) {
	*count++
	if len(report.Findings) < 20 {
		report.Findings = append(report.Findings, fmt.Sprintf(format, args...))
	}
}

// Proxies are cutting proxies, one in front of each server.
type Proxies struct {
	mu       sync.Mutex
	byServer map[string]*faults.CuttingProxy // by the address of the server
	order    []string                        // of the addresses, so that the choice depends only on the seed
}

// NewProxies returns Proxies without any proxy yet.
func NewProxies() *Proxies {
	return &Proxies{byServer: make(map[string]*faults.CuttingProxy)}
}

// AddressFor returns the address of the proxy in front of a server. It starts the proxy when it
// is first called for that server.
func (w *Proxies) AddressFor(address string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.byServer[address]; c != nil {
		return c.Address(), nil
	}
	c, err := faults.NewCuttingProxy(address)
	if err != nil {
		return "", err
	}
	w.byServer[address], w.order = c, append(w.order, address)
	return c.Address(), nil
}

// Close closes all proxies.
func (w *Proxies) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byServer {
		c.Close()
	}
}

// cut cuts a connection after a random number of bytes in one direction.
func (w *Proxies) cut(ctx context.Context, rng *rand.Rand) error {
	for ctx.Err() == nil {
		w.mu.Lock()
		c := w.byServer[w.order[rng.IntN(len(w.order))]]
		w.mu.Unlock()
		c.Arm(rng.IntN(2), rng.IntN(4000), rng.IntN(3))
		for end := time.Now().Add(time.Second); time.Now().Before(end) && !c.HasCut(); { // choose another proxy if no client uses this one
			time.Sleep(time.Millisecond)
		}
		if c.Disarm() {
			return nil
		}
	}
	return ctx.Err()
}
