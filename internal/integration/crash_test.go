package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

const (
	crashRounds  = 20
	crashClients = 200
	answerLimit  = time.Minute // for one client to get its response
)

// A trial is one way to make something by POST, and to see afterwards what was
// made.
type trial struct {
	path  string
	body  func(client int) string
	list  string // path that lists the created objects, a page at a time
	keyed bool
}

var (
	itemsTrial = trial{
		path:  "/api/v1/items",
		body:  func(client int) string { return fmt.Sprintf(`{"sku":"S-%d","title":"Lamp","status":"active"}`, client) },
		list:  "/api/v1/items?limit=100",
		keyed: true,
	}
	sandboxesTrial = trial{
		path:  "/v1/sandboxes",
		body:  func(int) string { return `{"ttl":3600}` },
		list:  "/v1/sandboxes?limit=100",
		keyed: true,
	}
)

func TestCrash_ServeIsKilledInTheMiddleOfParallelPosts(t *testing.T) {
	needs.Time(t)
	bin := buildServer(t)
	t.Run("every key has one item and one response", func(t *testing.T) {
		crashes(t, bin, itemsTrial, crashRounds, (*crash).check)
	})
	t.Run("every key has one sandbox and one response", func(t *testing.T) {
		crashes(t, bin, sandboxesTrial, 4, (*crash).check)
	})
	t.Run("without keys items are made twice: the tests above can fail", func(t *testing.T) {
		rng := seeded(t)
		blind := itemsTrial
		blind.keyed = false
		for round := range crashRounds {
			c := newCrash(t, bin, blind, rng)
			c.run(round)
			if made := len(c.made()); made > crashClients {
				t.Logf("round %d: %d items of %d requests", round, made, crashClients)
				return
			}
		}
		t.Errorf("no item was made twice in %d rounds", crashRounds)
	})
}

func crashes(t *testing.T, bin string, tr trial, rounds int, check func(*crash)) {
	rng := seeded(t)
	round, unanswered := 0, 0
	for ; round < rounds || unanswered == 0 && round < 10*rounds; round++ {
		c := newCrash(t, bin, tr, rng)
		c.run(round)
		check(c)
		unanswered += c.unanswered
		if t.Failed() {
			t.Fatalf("stopped after round %d", round)
		}
	}
	t.Logf("%d rounds, %d requests without a response when the server was killed", round, unanswered)
	if unanswered == 0 {
		t.Error("every request was answered before the server was killed: nothing was tried")
	}
}

// seeded returns a source of random instants whose seed is in the log.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A crash is one round: clients that ask until they get a response, and a server
// that is killed meanwhile.
type crash struct {
	t          *testing.T
	bin        string
	trial      trial
	rng        *rand.Rand
	data       string
	server     atomic.Pointer[process]
	http       *http.Client
	answered   atomic.Int64
	unanswered int

	mu      sync.Mutex
	answers [crashClients][]string // every response that each client got
}

func newCrash(t *testing.T, bin string, tr trial, rng *rand.Rand) *crash {
	c := &crash{t: t, bin: bin, trial: tr, rng: rng, data: t.TempDir()}
	c.http = &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: crashClients},
		Timeout:   answerLimit,
	}
	c.restart()
	return c
}

// run lets every client ask, kills the server at a random instant, and has all
// clients repeat the request, in every third round over another crash.
func (c *crash) run(round int) {
	done := c.all()
	c.killAfter(c.rng.IntN(crashClients))
	c.restart()
	<-done
	if c.trial.keyed {
		again := c.all()
		if round%3 == 2 {
			c.killAfter(c.rng.IntN(crashClients))
			c.restart()
		}
		<-again
	}
	c.http.CloseIdleConnections()
	c.server.Load().kill()
	c.restart() // the objects are read from the disk alone
}

// all has every client ask until it gets a response.
func (c *crash) all() (done <-chan struct{}) {
	c.answered.Store(0)
	var clients sync.WaitGroup
	for client := range crashClients {
		clients.Go(func() { c.ask(client) })
	}
	ended := make(chan struct{})
	go func() {
		clients.Wait()
		close(ended)
	}()
	return ended
}

// killAfter kills the server after a number of responses and a random moment in
// which others are being worked on.
func (c *crash) killAfter(answers int) {
	pause := time.Duration(c.rng.Int64N(int64(2 * time.Millisecond)))
	for c.answered.Load() < int64(answers) {
		time.Sleep(50 * time.Microsecond)
	}
	time.Sleep(pause)
	c.server.Load().kill()
	c.unanswered += crashClients - int(c.answered.Load())
}

func (c *crash) restart() { c.server.Store(startProcess(c.t, c.bin, c.data)) }

// ask asks until there is a response.
func (c *crash) ask(client int) {
	for end := time.Now().Add(answerLimit); c.t.Context().Err() == nil; time.Sleep(5 * time.Millisecond) {
		status, body, err := c.post(client)
		if err == nil && status == http.StatusCreated {
			c.mu.Lock()
			c.answers[client] = append(c.answers[client], body)
			c.mu.Unlock()
			c.answered.Add(1)
			return
		}
		if err == nil && status != http.StatusConflict && status < 500 || time.Now().After(end) {
			c.t.Errorf("client %d: %d %s, %v", client, status, body, err)
			c.answered.Add(1)
			return
		}
	}
}

func (c *crash) post(client int) (status int, body string, err error) {
	r, err := http.NewRequest(http.MethodPost, c.server.Load().url+c.trial.path, strings.NewReader(c.trial.body(client)))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.trial.keyed {
		r.Header.Set("Idempotency-Key", fmt.Sprintf("client-%d", client))
	}
	return c.do(r)
}

func (c *crash) do(r *http.Request) (status int, body string, err error) {
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// check compares the responses with the stored objects.
func (c *crash) check() {
	made := c.made()
	if len(made) != crashClients {
		c.t.Errorf("%d were made of %d keys", len(made), crashClients)
	}
	if c.t.Failed() {
		c.server.Load().kill()
		c.t.Fatalf("the server's log:\n%s", &c.server.Load().log)
	}
	for client, answers := range c.answers {
		for _, other := range answers[1:] {
			if other != answers[0] {
				c.t.Errorf("client %d got %s, then %s", client, answers[0], other)
			}
		}
		var thing struct{ ID any }
		if err := decode(answers[0], &thing); err != nil {
			c.t.Fatalf("client %d got %s: %v", client, answers[0], err)
		}
		if id := fmt.Sprint(thing.ID); made[id] != 1 {
			c.t.Errorf("%s, which client %d was answered, is there %d times", id, client, made[id])
		}
	}
}

// made counts the stored objects by id, over all pages.
func (c *crash) made() map[string]int {
	made := make(map[string]int)
	for cursor := ""; ; {
		r, err := http.NewRequest(http.MethodGet, c.server.Load().url+c.trial.list+cursor, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		status, body, err := c.do(r)
		if err != nil || status != http.StatusOK {
			c.t.Fatalf("list: %d %s, %v", status, body, err)
		}
		var page struct {
			Items []struct{ ID any }
			Next  any `json:"next_cursor"`
		}
		if err := decode(body, &page); err != nil {
			c.t.Fatalf("list: %s: %v", body, err)
		}
		for _, thing := range page.Items {
			made[fmt.Sprint(thing.ID)]++
		}
		if page.Next == nil {
			return made
		}
		cursor = "&cursor=" + fmt.Sprint(page.Next)
	}
}

// decode keeps numbers as they are written.
func decode(text string, into any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	return d.Decode(into)
}
