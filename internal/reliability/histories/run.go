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

// A Plan has the settings of a test of a store.
type Plan struct {
	Name           string
	Seed           uint64
	Calls          int // approximate number of calls in all
	Place          Place
	Processes      int
	Clients        int           // per process and key
	CallsPerClient int           // at most
	Keys           int           // in use at the same time
	Slack          time.Duration // the greatest difference between the store's clock and ours
	Lag            time.Duration // how late a lease or a record may end, and how much too little time the store may report as left
	SeesExpired    bool          // a process may still see a record that has expired for another
	Resends        int           // how many times a claim may have taken and lost the command before it returned; 0: once
	Releasing      time.Duration // how long a transaction tries to release its lock, which otherwise ends with its lease; 0: the server releases it
	Open           func() (Database, error)
	ClockMoves     bool         // records must not expire: an expired one may reappear when a clock is set back
	MayUndo        bool         // a failover may undo a call in doubt, unless the store has returned a record that it settled
	InMemory       bool         // the clients are in this process
	Faults         func(r *Run) // runs concurrently with the clients until r.Over is closed
	PictureDir     string       // directory for porcupine's pictures of violations; empty: none
	MaxFindings    int          // after which the run ends; 0: 1
}

// A Report is the result of a Plan.
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
	Violations int // findings that are decided
	Took       time.Duration
}

// A Run executes a Plan.
type Run struct {
	Plan
	Over chan struct{} // closed when the clients have ended
	db   Database

	mu        sync.Mutex
	running   []*process
	open      map[string]*openHistory
	faults    map[string]int
	report    Report
	paused    atomic.Int64 // the number of faults during which no new key may begin
	failure   error
	finishing sync.WaitGroup
	finished  chan struct{} // holds one value per key in use
}

// An openHistory is one whose clients have not ended.
type openHistory struct {
	History
	drift   int64 // difference between the time of day and now, at the beginning
	waiting map[*process]bool
	calls   map[[2]int]*Event
	closed  bool
}

// Do executes the plan.
func Do(p Plan) (*Report, error) {
	r := &Run{
		Plan: p, Over: make(chan struct{}), open: make(map[string]*openHistory), faults: make(map[string]int), finished: make(chan struct{}, p.Keys),
	}
	r.report = Report{Name: p.Name, Seed: p.Seed}
	began := time.Now()
	db, err := p.Open()
	if err != nil {
		return nil, err
	}
	r.db = db
	defer db.close()
	for n := range p.Processes {
		if err := r.startProcess(n); err != nil {
			return nil, err
		}
	}
	var faults sync.WaitGroup
	if p.Faults != nil {
		faults.Go(func() { p.Faults(r) })
	}
	r.runKeys()
	close(r.Over)
	faults.Wait()
	err = r.endProcesses()
	r.report.Faults, r.report.Took = r.faults, time.Since(began)
	return &r.report, err
}

// startProcess starts the nth process.
func (r *Run) startProcess(number int) error {
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

// runKeys begins one key after the other until there are enough calls or findings.
func (r *Run) runKeys() {
	for n := 0; n*r.Processes*r.Clients*r.CallsPerClient < r.Calls && !r.hasEnough(); n++ {
		select {
		case r.finished <- struct{}{}:
		case <-time.After(5 * time.Minute):
			r.fail(errors.New("no history has ended in five minutes"))
			return
		}
		for r.paused.Load() > 0 && !r.hasEnough() {
			time.Sleep(5 * time.Millisecond)
		}
		r.startKey(fmt.Sprintf("k%d", n))
	}
	r.finishing.Wait()
}

func (r *Run) hasEnough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.Violations >= max(1, r.MaxFindings) || r.failure != nil
}

func (r *Run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = cmp.Or(r.failure, err)
}

// startKey makes every running process call the store with the key.
func (r *Run) startKey(key string) {
	r.finishing.Add(1)
	o := &openHistory{History: History{Key: key, Seed: r.Seed, MayUndo: r.MayUndo}, drift: drift(), waiting: make(map[*process]bool), calls: make(map[[2]int]*Event)}
	r.mu.Lock()
	workers := slices.Clone(r.running)
	for _, w := range workers {
		o.waiting[w] = true
	}
	r.open[key] = o
	r.mu.Unlock()
	for _, w := range workers {
		job := Job{Key: key, Seed: r.Seed, Calls: r.CallsPerClient, Cancels: r.Faults != nil, NoExpiry: r.ClockMoves}
		for n := range r.Clients {
			job.Clients = append(job.Clients, w.number*r.Clients+n)
		}
		if err := w.send(job); err != nil {
			r.detach(w, key)
		}
	}
}

// receive stores a report of a process.
func (r *Run) receive(w *process, m report) {
	if m.Call == nil && m.Outcome == nil {
		r.detach(w, m.Key)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o, at := r.open[m.Key], [2]int{m.Client, m.N}
	if m.Call != nil {
		e := &Event{Call: *m.Call, Outcome: Outcome{Verdict: Doubt, Err: "the process ended", End: forever}, Slack: r.Slack, Lag: r.Lag, SeesExpired: r.SeesExpired, Resends: r.Resends, Releasing: r.Releasing}
		if w.child != nil {
			e.Process = w.child.Pid
		}
		o.calls[at] = e
		return
	}
	o.calls[at].Outcome = *m.Outcome
}

// processEnded leaves the calls of an ended process that have no outcome in doubt.
func (r *Run) processEnded(w *process) {
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.open))
	r.mu.Unlock()
	for _, key := range keys {
		r.detach(w, key)
	}
}

// detach removes a process from those that call with a key. After the last one, the history is
// checked.
func (r *Run) detach(w *process, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.open[key]
	if o == nil || o.closed {
		return
	}
	delete(o.waiting, w)
	if len(o.waiting) > 0 {
		return
	}
	o.closed = true
	go func() {
		defer r.finishing.Done()
		defer func() { <-r.finished }()
		r.check(o)
	}()
}

// checking limits how many histories are checked at the same time.
var checking = make(chan struct{}, runtime.NumCPU())

// check reads the record and the rows once more, and checks the history.
func (r *Run) check(o *openHistory) {
	for n, kind := range []Kind{Lookup, Rows} {
		e, err := r.readFinal(o.Key, kind, n)
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
	if found != nil && r.PictureDir != "" {
		path := filepath.Join(r.PictureDir, fmt.Sprintf("%s-%s.html", strings.ReplaceAll(r.Name, " ", "-"), o.Key))
		if err := o.Visualize(path); err == nil {
			found.Text += "picture: " + path + "\n"
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &r.report
	d.Calls += calls
	d.Doubtful += doubtful
	d.Histories++
	d.Longest, d.Slowest = max(d.Longest, calls), max(d.Slowest, took)
	if found != nil {
		d.Findings = append(d.Findings, *found)
		if !found.Undecided {
			d.Violations++
		}
	}
}

// drift returns the difference between the time of day and the clock of the events: the
// machine's clock may be set meanwhile.
func drift() int64 {
	n := now()
	return time.Now().UnixNano() - n
}

// readFinal reads the record or the rows, and repeats that until the store responds.
func (r *Run) readFinal(key string, kind Kind, n int) (*Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		call := &Call{Kind: kind, Client: r.Processes * r.Clients, N: n, Start: now()}
		o := do(ctx, r.db, key, call, 0)
		if o.Verdict == Done || o.Verdict == NotFound {
			return &Event{Call: *call, Outcome: *o, Slack: r.Slack, Lag: r.Lag, SeesExpired: r.SeesExpired, Resends: r.Resends, Releasing: r.Releasing}, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %s", o.Verdict, o.Err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// endProcesses ends the processes.
func (r *Run) endProcesses() error {
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
