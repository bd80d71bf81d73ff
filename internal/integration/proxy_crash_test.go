package integration

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

const (
	proxyKills   = 8
	proxyClients = 16
	proxyLease   = 2 * time.Second // then the commands of a killed proxy are unknown
)

// The stores of proxies that are killed, and how many proxies share one.
var killedStores = []struct {
	name    string
	proxies int
	open    func(t *testing.T) string
}{
	{"SQLite", 1, func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "keys.db") }},
	{"PostgreSQL", 2, sharedStores["PostgreSQL"]},
	{"MariaDB or MySQL", 2, sharedStores["MariaDB or MySQL"]},
}

// With hold, whatever is killed and when, the upstream never gets a key twice. A command whose
// response was sent is replayed. A command that the upstream may have run, without a response,
// is rejected as unknown.
func TestProxy_AKilledProxyLosesAndDoublesNothingThatItHolds(t *testing.T) {
	needs.Time(t)
	bin := buildServer(t)
	for _, k := range killedStores {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := newProxyCrowd(t, bin, k.open(t), k.proxies, "--unknown", "hold")
			runs := c.run(func() bool { return len(c.held) > 0 })
			if len(c.held) == 0 {
				t.Error("no outcome was unknown: nothing was tried")
			}
			for key, runs := range runs {
				if runs != 1 {
					t.Errorf("%s: the upstream got it %d times", key, runs)
				}
			}
			c.check(runs)
		})
	}
}

// With rerun, a command without a response runs again; one with a response does not.
func TestProxy_AKilledProxyRunsAgainOnlyWhatGotNoResponse(t *testing.T) {
	needs.Time(t)
	bin := buildServer(t)
	for _, k := range killedStores {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := newProxyCrowd(t, bin, k.open(t), k.proxies, "--unknown", "rerun")
			runs := c.run(func() bool { return most(c.runs) > 1 })
			if most(runs) < 2 {
				t.Error("nothing ran again: nothing was tried")
			}
			if len(c.held) > 0 {
				t.Errorf("%d keys are held", len(c.held))
			}
			c.check(runs)
		})
	}
}

func most(runs map[string]int) (n int) {
	for _, times := range runs {
		n = max(n, times)
	}
	return n
}

// A proxyCrowd is clients that ask, each with ever new keys, until they get
// a response, an upstream that counts, and proxies that are killed meanwhile.
type proxyCrowd struct {
	t       *testing.T
	bin     string
	args    []string
	store   string
	up      *httptest.Server
	rng     *rand.Rand
	proxies []atomic.Pointer[process]
	http    *http.Client
	ran     atomic.Int64
	stop    atomic.Bool

	sync.Mutex
	runs       map[string]int    // how often the upstream got a key
	answers    map[string]string // the first client's response, by key
	held       map[string]bool   // whose outcome is unknown
	unrecorded map[string]bool   // whose response says that it is not on record: the disk was slow
}

func newProxyCrowd(t *testing.T, bin, store string, proxies int, args ...string) *proxyCrowd {
	t.Helper()
	c := &proxyCrowd{
		t: t, bin: bin, store: store, args: append(args, "--lease", proxyLease.String()), rng: seeded(t),
		proxies: make([]atomic.Pointer[process], proxies),
		http:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: proxyClients}, Timeout: answerLimit},
		runs:    map[string]int{}, answers: map[string]string{}, held: map[string]bool{}, unrecorded: map[string]bool{},
	}
	c.up = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.up.Close)
	for i := range c.proxies {
		c.restart(i)
	}
	return c
}

func (c *proxyCrowd) serve(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	c.Lock()
	c.runs[key]++
	n := c.runs[key]
	c.Unlock()
	c.ran.Add(1)
	time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond) // it works
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s run %d", key, n)
}

func (c *proxyCrowd) restart(i int) {
	c.t.Helper()
	c.proxies[i].Store(startProxy(c.t, c.bin, c.up.URL, c.store, c.args...))
}

// run lets the clients ask while proxies are killed and started again, until
// that has made a difference, and returns how often the upstream got each key.
func (c *proxyCrowd) run(tried func() bool) (runs map[string]int) {
	c.t.Helper()
	var clients sync.WaitGroup
	for n := range proxyClients {
		clients.Go(func() {
			for i := 0; !c.stop.Load(); i++ {
				key := fmt.Sprintf("c%d-%d", n, i)
				answer, recorded := c.ask(key, n)
				c.note(key, answer, recorded)
			}
		})
	}
	enough := func() bool {
		c.Lock()
		defer c.Unlock()
		return tried()
	}
	for kill := 0; kill < proxyKills || !enough() && kill < 10*proxyKills; kill++ {
		after := c.ran.Load() + 20 + int64(c.rng.IntN(200))
		eventually(c.t, "the upstream is asked", func() bool { return c.ran.Load() >= after || c.t.Failed() })
		i := kill % len(c.proxies)
		c.proxies[i].Load().kill()
		c.restart(i)
	}
	c.stop.Store(true)
	clients.Wait()
	c.Lock() // a request that a killed proxy had sent may still come
	defer c.Unlock()
	c.t.Logf("%d keys answered, %d not on record, %d held, %d runs", len(c.answers), len(c.unrecorded), len(c.held), c.ran.Load())
	return maps.Clone(c.runs)
}

const unknownOutcome = "outcome_unknown"

// ask asks one proxy after the other until one of them responds for good, and
// returns the response, or unknownOutcome. A response that is on record says how
// long.
func (c *proxyCrowd) ask(key string, from int) (answer string, recorded bool) {
	for end := time.Now().Add(answerLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		from++
		r, err := http.NewRequest(http.MethodPost, c.proxies[from%len(c.proxies)].Load().url+"/orders", strings.NewReader(key))
		if err != nil {
			c.t.Error(err)
			break
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := c.http.Do(r)
		if err != nil {
			continue // it is being killed
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
		case resp.StatusCode == http.StatusCreated:
			return string(body), resp.Header.Get("Idempotency-Expires") != ""
		case resp.StatusCode == http.StatusConflict && strings.Contains(string(body), unknownOutcome):
			return unknownOutcome, true
		case resp.StatusCode != http.StatusConflict && resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusBadGateway:
			c.t.Errorf("%s: %s %s", key, resp.Status, body)
			return "", false
		}
	}
	c.t.Errorf("%s: no response in %v", key, answerLimit)
	return "", false
}

func (c *proxyCrowd) note(key, answer string, recorded bool) {
	c.Lock()
	defer c.Unlock()
	switch {
	case answer == unknownOutcome:
		c.held[key] = true
	case recorded:
		c.answers[key] = answer
	default:
		c.unrecorded[key] = true
	}
}

// lastResponse is the upstream's response when it got a key the last time.
func lastResponse(key string, runs map[string]int) string {
	return fmt.Sprintf("%s run %d", key, runs[key])
}

// check asks for every key again: nothing has changed, and nothing runs. Only what
// a killed proxy had sent to a slow database may have come after the lease had
// lapsed: then the response is known.
func (c *proxyCrowd) check(runs map[string]int) {
	c.t.Helper()
	if len(c.unrecorded) > len(c.answers) {
		c.t.Errorf("%d of %d answers are not on record", len(c.unrecorded), len(c.unrecorded)+len(c.answers))
	}
	before := c.ran.Load()
	for key, answer := range c.answers {
		if again, _ := c.ask(key, 0); again != answer {
			c.t.Errorf("%s got %q, then %q", key, answer, again)
		}
		if want := lastResponse(key, runs); answer != want {
			c.t.Errorf("%s got %q, and the last run's response is %q", key, answer, want)
		}
	}
	for key := range c.held {
		if again, _ := c.ask(key, 0); again != unknownOutcome && again != lastResponse(key, runs) {
			c.t.Errorf("%s was held, and then gets %q", key, again)
		}
	}
	for key := range runs {
		if _, answered := c.answers[key]; !answered && !c.held[key] && !c.unrecorded[key] {
			c.t.Errorf("%s was run and is lost", key)
		}
	}
	if n := c.ran.Load() - before; n > 0 {
		c.t.Errorf("%d repeats ran", n)
	}
}
