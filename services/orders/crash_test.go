package orders

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

const (
	crashKeys    = 12
	crashClients = 6
	crashLimit   = 2 * time.Minute // for one client to get its response
)

// crashRounds is how often each point is tried: often where nothing may be
// skipped, a few times elsewhere, on the third engine, and under the race
// detector, which sees nothing in processes that are killed.
func crashRounds(engine string) int {
	if needs.Required() && engine != "mysql" && !underRace {
		return 25
	}
	return 3
}

func TestCrash_AServerIsKilledAtEveryPoint(t *testing.T) {
	needs.Time(t)
	for _, engine := range apitest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // much of it is waiting for disks
			for _, at := range []string{afterClaim, inWork, afterPayment, beforeCommit, inCommit, beforeResponse, beforeMark, beforeTaken, afterTaken} {
				t.Run(at, func(t *testing.T) { killAt(t, engine, at) })
			}
		})
	}
}

func killAt(t *testing.T, engine, at string) {
	w := openWorld(t, apitest.NewDatabase(t, engine))
	for round := range crashRounds(engine) {
		c := &crash{world: w, round: round, point: at}
		c.run()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// A crash is one round: clients that ask until they get a response, and a server
// that kills itself meanwhile.
type crash struct {
	*world
	round   int
	point   string
	pays    *provider // nil: nothing is charged
	server  atomic.Pointer[server]
	died    bool
	mu      sync.Mutex
	answers map[string][]string // by key
}

func (c *crash) run() {
	c.answers = map[string][]string{}
	settings := testServer{Database: *c.on, Point: c.point, After: rand.Int32N(crashKeys / 2)}
	if c.point == beforeMark {
		settings.After = 0 // it may mark all at once
	}
	if c.point == afterPayment || c.point != inWork && c.round%2 == 1 {
		c.pays = newProvider(c.t)
		settings.Charge = c.pays.URL
	}
	c.start(settings)
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(settings, ended)
	}()
	for range 2 { // the second time, every response is a replay
		c.ask()
	}
	eventually(c.t, "all is shipped", func() bool { return c.lag().Waiting == 0 })
	close(ended)
	<-watched
	c.check()
	c.server.Load().stop()
}

// watch starts the server again when it has killed itself.
func (c *crash) watch(settings testServer, until chan struct{}) {
	for {
		s := c.server.Load()
		select {
		case <-s.ended:
		case <-until:
			return
		}
		if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			c.t.Errorf("the server ended by itself: %v\n%s", s.cmd.ProcessState, &s.log)
		}
		c.died = true
		if err := c.free(); err != nil {
			c.t.Error(err)
		}
		settings.Point = ""
		c.start(settings)
	}
}

// ask gets the response of every key.
func (c *crash) ask() {
	keys := make(chan string)
	var clients sync.WaitGroup
	for range crashClients {
		clients.Go(func() {
			for k := range keys {
				c.answer(k)
			}
		})
	}
	for n := range crashKeys {
		keys <- fmt.Sprintf("%d-%d", c.round, n)
	}
	close(keys)
	clients.Wait()
}

// answer asks until there is a response.
func (c *crash) answer(k string) {
	for end := time.Now().Add(crashLimit); ; time.Sleep(5 * time.Millisecond) {
		status, body, err := c.post(k)
		if err == nil && status == http.StatusCreated {
			c.mu.Lock()
			c.answers[k] = append(c.answers[k], body)
			c.mu.Unlock()
			return
		}
		if err == nil && status == http.StatusConflict { // of an attempt that is dead: nobody else asks for the key
			if err := c.lapse(onlyonce.ID{Tenant: c.tenant(), Operation: operation, Key: k}); err != nil {
				c.t.Error(err)
			}
		}
		if err == nil && status != http.StatusConflict && status < 500 || time.Now().After(end) {
			c.t.Errorf("key %s: %d %s, %v", k, status, body, err)
			return
		}
	}
}

func (c *crash) post(k string) (status int, body string, err error) {
	r, err := http.NewRequest(http.MethodPost, c.server.Load().url+"/orders", strings.NewReader(two))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Tenant-ID", c.tenant())
	r.Header.Set("Idempotency-Key", k)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func (c *crash) tenant() string { return fmt.Sprint("round-", c.round) }

// check compares the responses with the stored orders.
func (c *crash) check() {
	if !c.died {
		c.t.Errorf("the server never came to %q: nothing was tried", c.point)
	}
	for k, answers := range c.answers {
		for _, other := range answers[1:] {
			if other != answers[0] {
				c.t.Errorf("key %s got %s, then %s", k, answers[0], other)
			}
		}
		var got created
		if err := json.Unmarshal([]byte(answers[0]), &got); err != nil {
			c.t.Fatal(err)
		}
		o, err := orderIDs.Parse(got.ID)
		if err != nil {
			c.t.Fatal(err)
		}
		if n := c.count("SELECT count(*) FROM orders_orders WHERE id = ? AND tenant = ?", o[:], c.tenant()); n != 1 {
			c.t.Errorf("order %s, which key %s was answered, is there %d times", got.ID, k, n)
		}
	}
	if n := c.count("SELECT count(*) FROM orders_orders WHERE tenant = ?", c.tenant()); n != crashKeys {
		c.t.Errorf("%d orders of %d keys", n, crashKeys)
	}
	shipped := c.count("SELECT count(*) FROM orders_shipments WHERE tenant = ?", c.tenant())
	once := c.count("SELECT count(DISTINCT order_id) FROM orders_shipments s JOIN orders_orders o ON o.id = s.order_id WHERE s.tenant = ?", c.tenant())
	if shipped != crashKeys || once != crashKeys || c.lag().Parked != 0 {
		c.t.Errorf("%d shipments of %d orders, %d keys; %d events parked", shipped, once, crashKeys, c.lag().Parked)
	}
	if c.pays != nil {
		if charges, _ := c.pays.charged(); charges != crashKeys {
			c.t.Errorf("%d charges of %d orders", charges, crashKeys)
		}
	}
}

// A server is a process of the test binary that serves.
type server struct {
	cmd   *exec.Cmd
	in    io.Closer
	url   string
	log   bytes.Buffer
	ended chan struct{}
}

func (c *crash) start(settings testServer) {
	text, err := json.Marshal(settings)
	if err != nil {
		c.t.Fatal(err)
	}
	s := &server{cmd: exec.CommandContext(c.t.Context(), os.Args[0]), ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "ORDERS_TEST_SERVER="+string(text))
	s.cmd.Stderr = &s.log
	in, err := s.cmd.StdinPipe()
	if err != nil {
		c.t.Error(err)
		return
	}
	s.in = in
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		c.t.Error(err)
		return
	}
	if err := s.cmd.Start(); err != nil {
		c.t.Error(err)
		return
	}
	line, _ := bufio.NewReader(out).ReadString('\n') // none: it ended, which watch sees
	s.url = strings.TrimSpace(line)
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // ProcessState has how it ended
	}()
	c.server.Store(s)
}

func (s *server) stop() {
	_ = s.in.Close()
	<-s.ended
}
