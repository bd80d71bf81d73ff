//go:build linux

package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A Plan has the settings of a test of one store.
type Plan struct {
	Name    string
	Seed    uint64 // of the faults
	Place   Place
	Server  *faults.Server // nil: there is none
	Kills   int            // of processes
	Crashes int            // of the server
	Every   time.Duration  // mean time between two faults
	Clients int
}

// A Report is the result of a Plan.
type Report struct {
	Name     string
	Seed     uint64
	Commands int
	Sent     int64
	Kills    int // of processes
	Crashes  int // of servers
	Cuts     int // of connections
	Stops    int // of processes, for more than a lease
	Held     int // commands whose outcome is unknown
	Unstored int // responses that could not be recorded

	Lost, Doubled, Differing int
	Outlived                 int64
	ControlDoubled           int
	Findings                 []string // descriptions of the first errors
	Took                     time.Duration
}

// A run executes a Plan.
type run struct {
	Plan
	db      *Database // in this process, which is not killed
	service *httptest.Server
	http    *http.Client
	over    atomic.Bool
	sent    atomic.Int64

	mu        sync.Mutex
	processes []*process
	outlived  int64 // contexts of ended processes that outlived their lease
	commands  map[string]*command
	failure   error
}

// A command has the responses that its clients got.
type command struct {
	way      string
	first    string // the token of the first response
	ran      int    // how many responses came from a run that was recorded
	held     bool
	unstored bool     // a response could not be recorded, so the command may be held, or run again where that is harmless
	others   []string // tokens of later responses that differ from the first
}

// jobs are the jobs of the processes.
var jobs = []string{jobCall, jobCall, jobCall, jobHTTP, jobHTTP, jobProxy, jobProxy}

// responseTimeout is how long a client repeats one command.
const responseTimeout = 3 * time.Minute

// Do executes the plan.
func Do(p Plan) (*Report, error) {
	r := &run{Plan: p, http: newClient(), commands: make(map[string]*command)}
	began := time.Now()
	var err error
	if err = CreateTables(p.Place); err != nil {
		return nil, err
	}
	if r.db, err = Open(p.Place); err != nil {
		return nil, err
	}
	defer r.db.Close()
	r.serve()
	defer func() { r.service.Close() }()
	report := &Report{Name: p.Name, Seed: p.Seed}
	for _, job := range jobs {
		c, err := r.start(job)
		if err != nil {
			return nil, err
		}
		r.processes = append(r.processes, c)
	}
	var clients sync.WaitGroup
	for n := range p.Clients {
		clients.Go(func() { r.client(n) })
	}
	err = r.faults(report)
	r.over.Store(true)
	clients.Wait()
	r.mu.Lock()
	err = errors.Join(err, r.failure)
	r.mu.Unlock()
	if err == nil {
		err = r.settle(report)
	}
	for _, c := range r.processes {
		r.kill(c)
	}
	report.Outlived, report.Sent, report.Took = r.outlived, r.sent.Load(), time.Since(began)
	return report, err
}

func (r *run) start(job string) (*process, error) {
	return start(job, r.service.URL, r.Place, r.http)
}

// serve starts the service behind the proxies.
func (r *run) serve() {
	r.service = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { respondWithEntry(r.db, w, q) }))
	r.service.Config.ErrorLog = quiet
	r.service.Start()
}

// kill kills a process and adds its count of contexts to the run's.
func (r *run) kill(c *process) {
	c.Kill()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outlived += c.outlived
}

// replace kills the nth process, and starts another in its place.
func (r *run) replace(n int) error {
	r.mu.Lock()
	c := r.processes[n]
	r.mu.Unlock()
	r.kill(c)
	next, err := r.start(c.job)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[n] = next
	return nil
}

// maxKillFactor bounds the kills, as a multiple of those that are planned. There are more than
// planned until the control has doubled a command.
const maxKillFactor = 50

// controlHasDoubled reports whether a command without protection has run twice.
func (r *run) controlHasDoubled() bool {
	var command string
	err := r.db.db.QueryRow("SELECT command FROM entries WHERE command LIKE 'p%' GROUP BY command HAVING count(*) > 1 LIMIT 1").Scan(&command)
	return err == nil
}

// faults kills processes and servers, cuts connections and stops processes, as often as
// planned.
func (r *run) faults(report *Report) error {
	rng := rand.New(rand.NewPCG(r.Seed, 1))
	crashes := 0
	if r.Server != nil {
		crashes = r.Crashes
	}
	for report.Kills < r.Kills || report.Crashes < crashes || report.Kills < maxKillFactor*r.Kills && !r.controlHasDoubled() {
		time.Sleep(r.Every/2 + time.Duration(rng.Int64N(int64(r.Every))))
		n, choice := rng.IntN(len(r.processes)), rng.IntN(100)
		switch {
		case report.Crashes < crashes && report.Kills*crashes >= report.Crashes*r.Kills+r.Kills/2:
			if err := r.Server.Restart(); err != nil {
				return err
			}
			report.Crashes++
		case choice < 3:
			r.mu.Lock()
			c := r.processes[n]
			r.mu.Unlock()
			c.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(rng.Int64N(int64(lease) * 5 / 4)))
			c.Signal(syscall.SIGCONT)
			report.Stops++
		case choice < 13 && r.Server != nil:
			cut, err := r.Server.KillConnections(func() bool { return rng.IntN(3) > 0 })
			if err != nil {
				return err
			}
			report.Cuts += cut
		default:
			if err := r.replace(n); err != nil {
				return err
			}
			report.Kills++
		}
	}
	return nil
}

// ways are the ways of sending a command that a client uses in turn, each with the job of the
// process that responds.
var ways = []struct{ way, job string }{
	{ByDoTx, jobCall},
	{ByHeld, jobCall},
	{ByRerun, jobCall},
	{ByHTTP, jobHTTP},
	{ByProxy, jobProxy},
	{Plain, jobCall},
}

// client sends one command after the other. Every command has two clients.
func (r *run) client(number int) {
	for n := 0; !r.over.Load(); n++ {
		w := ways[(number/2+n)%len(ways)]
		key := fmt.Sprintf("c%d-%d", number/2, n)
		if w.way == Plain {
			key = fmt.Sprintf("p%d-%d", number, n) // two clients with one key would double each other's commands
		}
		r.mu.Lock()
		if r.commands[key] == nil {
			r.commands[key] = &command{way: w.way}
		}
		r.mu.Unlock()
		if _, err := r.sendUntilResponse(key, w.way, w.job); err != nil {
			r.mu.Lock()
			r.failure = errors.Join(r.failure, err)
			r.mu.Unlock()
			return
		}
	}
}

// sendUntilResponse repeats a command until it gets a response, or the command is held.
func (r *run) sendUntilResponse(key, way, job string) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), responseTimeout)
	defer cancel()
	for n := 0; ; n++ {
		a, err := r.randomProcess(job).send(ctx, way, key, fmt.Sprintf("%s.%x", key, rand.Uint64()))
		r.sent.Add(1)
		if err == nil {
			r.recordResponse(key, a)
			return a, nil
		}
		if ctx.Err() != nil {
			return response{}, fmt.Errorf("%s, %s: no response: %w", key, way, err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
	}
}

// randomProcess returns one of the processes with the job.
func (r *run) randomProcess(job string) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if c := r.processes[rand.IntN(len(r.processes))]; c.job == job {
			return c
		}
	}
}

// recordResponse adds a response to its command.
func (r *run) recordResponse(key string, a response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.commands[key]
	switch {
	case a.Held:
		c.held = true
		return
	case c.first == "":
		c.first = a.Token
	case c.first != a.Token:
		c.others = append(c.others, a.Token)
	}
	c.unstored = c.unstored || a.Unstored
	if !a.Replayed && !a.Unstored {
		c.ran++
	}
}
