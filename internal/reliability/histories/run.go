//go:build linux

package histories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Plan says how a store is tried.
type Plan struct {
	Name       string
	Seed       uint64
	Calls      int // about as many in all
	Place      Place
	Processes  int
	Clients    int           // of every process for every key
	Each       int           // calls of a client at most
	Keys       int           // that are called with at the same time
	Slack      time.Duration // how far the store's clock may be from ours
	Lag        time.Duration // how much later a lease or a record may end, and how much less of it may be shown
	Apart      bool          // one process may still see a record that has expired for another
	Resends    int           // how often a claim may have had an effect, and lost it again, before it returned; 0: once
	Open       func() (Database, error)
	ClockMoves bool         // records do not expire: what has expired may be there again when a clock is set back
	Undone     bool         // a failover may undo a call in doubt, unless the store has returned a record that it settled
	InMemory   bool         // the clients are in this process
	Faults     func(r *Run) // runs beside the clients until r.Over is closed
	Pictures   string       // a directory for porcupine's pictures of what is wrong; empty: none
	Enough     int          // findings after which the run ends; 0: 1
}

// A Report is what became of a run.
type Report struct {
	Name       string
	Seed       uint64
	Calls      int
	Doubtful   int // calls in doubt
	Histories  int
	Longest    int           // calls of a history
	Slowest    time.Duration // check of a history
	Faults     map[string]int
	Findings   []Finding
	Violations int // among the findings: the others were not decided
	Took       time.Duration
}

// A Run is a plan that is being carried out.
type Run struct {
	Plan
	Over chan struct{} // closed when the clients have ended
	db   Database

	mu        sync.Mutex
	running   []*process
	open      map[string]*open
	faults    map[string]int
	done      Report
	paused    atomic.Int64 // how many faults want no new keys to begin
	failure   error
	finishing sync.WaitGroup
	finished  chan struct{} // a place among the keys for each
}

// An open history is one whose clients still call.
type open struct {
	History
	drift  int64 // the time of day less now, at the beginning
	waits  map[*process]bool
	calls  map[[2]int]*Event
	closed bool
}

// Do carries out the plan.
func Do(p Plan) (*Report, error) {
	r := &Run{
		Plan: p, Over: make(chan struct{}), open: make(map[string]*open), faults: make(map[string]int), finished: make(chan struct{}, p.Keys),
	}
	r.done = Report{Name: p.Name, Seed: p.Seed}
	began := time.Now()
	db, err := p.Open()
	if err != nil {
		return nil, err
	}
	r.db = db
	defer db.close()
	for n := range p.Processes {
		if err := r.begin(n); err != nil {
			return nil, err
		}
	}
	var faults sync.WaitGroup
	if p.Faults != nil {
		faults.Go(func() { p.Faults(r) })
	}
	r.keys()
	close(r.Over)
	faults.Wait()
	err = r.end()
	r.done.Faults, r.done.Took = r.faults, time.Since(began)
	return &r.done, err
}

// begin starts the process of that number.
func (r *Run) begin(number int) error {
	var w *process
	var err error
	if r.InMemory {
		w = startInProcess(number, r.db, r.receive)
	} else if w, err = start(number, r.Place, r.receive); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if number == len(r.running) {
		r.running = append(r.running, w)
	} else {
		r.running[number] = w
	}
	go func() {
		<-w.ended
		r.processEnded(w)
	}()
	return nil
}

// keys begins one key after the other until there are calls enough, or enough is
// wrong.
func (r *Run) keys() {
	for n := 0; n*r.Processes*r.Clients*r.Each < r.Calls && !r.enough(); n++ {
		select {
		case r.finished <- struct{}{}:
		case <-time.After(5 * time.Minute):
			r.fail(errors.New("no history has ended in five minutes"))
			return
		}
		for r.paused.Load() > 0 && !r.enough() {
			time.Sleep(5 * time.Millisecond)
		}
		r.key(fmt.Sprintf("k%d", n))
	}
	r.finishing.Wait()
}

func (r *Run) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done.Violations >= max(1, r.Enough) || r.failure != nil
}

func (r *Run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = cmp.Or(r.failure, err)
}

// key has every process that runs call with the key.
func (r *Run) key(key string) {
	r.finishing.Add(1)
	o := &open{History: History{Key: key, Seed: r.Seed, Undone: r.Undone}, drift: drift(), waits: make(map[*process]bool), calls: make(map[[2]int]*Event)}
	r.mu.Lock()
	workers := slices.Clone(r.running)
	for _, w := range workers {
		o.waits[w] = true
	}
	r.open[key] = o
	r.mu.Unlock()
	for _, w := range workers {
		job := Job{Key: key, Seed: r.Seed, Calls: r.Each, Cancels: r.Faults != nil, NoExpiry: r.ClockMoves}
		for n := range r.Clients {
			job.Clients = append(job.Clients, w.number*r.Clients+n)
		}
		if err := w.send(job); err != nil {
			r.leaves(w, key)
		}
	}
}

// receive notes what a process reports.
func (r *Run) receive(w *process, m report) {
	if m.Call == nil && m.Outcome == nil {
		r.leaves(w, m.Key)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o, at := r.open[m.Key], [2]int{m.Client, m.N}
	if m.Call != nil {
		e := &Event{Call: *m.Call, Outcome: Outcome{Verdict: Doubt, Err: "the process ended", End: forever}, Slack: r.Slack, Lag: r.Lag, Apart: r.Apart, Resends: r.Resends}
		if w.child != nil {
			e.Process = w.child.Pid
		}
		o.calls[at] = e
		return
	}
	o.calls[at].Outcome = *m.Outcome
}

// processEnded takes note that a process has ended: its calls that have no outcome are
// in doubt.
func (r *Run) processEnded(w *process) {
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.open))
	r.mu.Unlock()
	for _, key := range keys {
		r.leaves(w, key)
	}
}

// leaves takes note that a process calls no more with a key. After the last one
// the history is looked at.
func (r *Run) leaves(w *process, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.open[key]
	if o == nil || o.closed {
		return
	}
	delete(o.waits, w)
	if len(o.waits) > 0 {
		return
	}
	o.closed = true
	go func() {
		defer r.finishing.Done()
		defer func() { <-r.finished }()
		r.finish(o)
	}()
}

// checking bounds how many histories are checked at the same time.
var checking = make(chan struct{}, runtime.NumCPU())

// finish looks once more, and checks the history.
func (r *Run) finish(o *open) {
	for n, kind := range []Kind{Lookup, Rows} {
		e, err := r.look(o.Key, kind, n)
		if err != nil {
			r.fail(fmt.Errorf("look at %s in the end: %w", o.Key, err))
			return
		}
		o.Events = append(o.Events, e)
	}
	r.mu.Lock()
	delete(r.open, o.Key)
	o.Events = slices.AppendSeq(o.Events, maps.Values(o.calls))
	r.mu.Unlock()
	doubtful, drifted := 0, time.Duration(drift()-o.drift).Abs()
	for _, e := range o.Events {
		e.Slack += drifted
		if e.Verdict == Doubt {
			doubtful++
		}
	}
	calls := len(o.Events)
	checking <- struct{}{}
	began := time.Now()
	found := o.Check()
	took := time.Since(began)
	<-checking
	if found != nil && r.Pictures != "" {
		path := filepath.Join(r.Pictures, fmt.Sprintf("%s-%s.html", strings.ReplaceAll(r.Name, " ", "-"), o.Key))
		if err := o.Visualize(path); err == nil {
			found.Text += "picture: " + path + "\n"
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &r.done
	d.Calls += calls
	d.Doubtful += doubtful
	d.Histories++
	d.Longest, d.Slowest = max(d.Longest, calls), max(d.Slowest, took)
	if found != nil {
		d.Findings = append(d.Findings, *found)
		if !found.Unknown {
			d.Violations++
		}
	}
}

// drift is what the time of day and the clock of the events are apart: somebody
// may set the machine's clock.
func drift() int64 {
	n := now()
	return time.Now().UnixNano() - n
}

// look reads the record or the rows, until the store responds.
func (r *Run) look(key string, kind Kind, n int) (*Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		call := &Call{Kind: kind, Client: r.Processes * r.Clients, N: n, Start: now()}
		o := do(ctx, r.db, key, call, 0)
		if o.Verdict == Done || o.Verdict == NotFound {
			return &Event{Call: *call, Outcome: *o, Slack: r.Slack, Lag: r.Lag, Apart: r.Apart, Resends: r.Resends}, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %s", o.Verdict, o.Err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// end ends the processes.
func (r *Run) end() error {
	r.mu.Lock()
	workers := slices.Clone(r.running)
	r.mu.Unlock()
	for _, w := range workers {
		if err := w.end(); err != nil {
			r.fail(err)
		}
	}
	return r.failure
}
