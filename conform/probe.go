package conform

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// A probe is one run against a target, and what it has learned of it.
type probe struct {
	ctx    context.Context
	target Target
	bodies *bodyMaker
	wire   *wire
	burst  int

	progress func(row Row, n, of int) // nil: nobody follows

	quoted bool // keys are sent in quotes

	// What one command (first), the same body under another key (second) and a
	// repeat of the first got.
	command               command
	first, second, repeat response
	shown                 []Exchange
	repeatRuns            int // how often the repeat took effect; -1: not counted

	unit     int      // how much the count grows by one effect; 0: nothing is counted
	marker   string   // the header by which a repeat's response says that it is one
	identity []string // the parts of a response by which a run is known
	sees     bool     // a second run can be told from a replay
	replays  bool

	rejected []seen // what rejections look like, once someone asked
}

// A command is what one key is used for.
type command struct {
	key   string
	body  []byte
	fresh string
}

// A seen response, with what shows it.
type seen struct {
	response
	exchange Exchange
}

// new returns a command with a new key and, if bodies vary, a new body.
func (p *probe) new() command {
	body, fresh, err := p.bodies.next()
	if err != nil {
		panic(err) // the first one was made
	}
	return command{key: newKey(), body: body, fresh: fresh}
}

// form is a key as it is sent.
func (p *probe) form(key string) string {
	if p.quoted {
		return `"` + key + `"`
	}
	return key
}

// shot is the request for a command.
func (p *probe) shot(c command) shot { return p.raw(c.body, p.form(c.key)) }

// raw is a request with a body and the lines of its key's header as they are.
func (p *probe) raw(body []byte, keys ...string) shot {
	return shot{
		method: p.target.Method, url: p.target.URL, header: p.target.header(false),
		keyed: p.target.KeyHeader, keys: keys, body: body,
	}
}

// once sends a request and returns its response.
func (p *probe) once(note string, s shot) (seen, error) {
	c, err := p.wire.open(p.ctx, s)
	if err != nil {
		return seen{}, err
	}
	c.write(0)
	a := c.response()
	return seen{a, c.exchange(note, a)}, p.ctx.Err()
}

// send is once, and again if there were too many requests, twice. An API that
// still has too many can't be checked.
func (p *probe) send(note string, s shot) (a seen, err error) {
	for range 3 {
		if a, err = p.once(note, s); err != nil || a.status != http.StatusTooManyRequests {
			return a, err
		}
		if err := p.sleep(a.retryAfter(time.Second)); err != nil {
			return a, err
		}
	}
	return a, fmt.Errorf("%s %s keeps responding with 429: raise its limit for the check", s.method, p.wire.censor.text(s.url))
}

// ask sends a command's request.
func (p *probe) ask(note string, c command) (seen, error) { return p.send(note, p.shot(c)) }

// start sends a new command's request. Where that does not succeed, nothing can
// be said of what follows.
func (p *probe) start(note string, c command) (seen, error) {
	a, err := p.ask(note, c)
	if err == nil && !a.ok() {
		err = fmt.Errorf("a command with a new key got %v, where a success was expected", a.response)
	}
	return a, err
}

// insist sends a command's request until its response reports success,
// at most ten times and for as long as one request may take; the last response is
// returned. It asks sooner than a Retry-After says, since that is a guess.
func (p *probe) insist(note string, c command) (a seen, err error) {
	wait := 50 * time.Millisecond
	end := time.Now().Add(p.wire.timeout)
	for range 10 {
		if a, err = p.once(note, p.shot(c)); err != nil || a.ok() || time.Now().After(end) {
			return a, err
		}
		if err := p.sleep(wait); err != nil {
			return a, err
		}
		wait = min(2*wait, 2*time.Second)
	}
	return a, nil
}

func (p *probe) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// moments are within what a command takes: none, an eighth, and half of it.
func (p *probe) moments() []time.Duration {
	half := min(p.first.took, p.second.took, time.Second) / 2
	return []time.Duration{half, half / 4, 0}
}

// counting runs fn and returns how often the command took effect meanwhile, or
// -1 if nothing is counted.
func (p *probe) counting(c command, fn func() error) (runs int, err error) {
	if p.unit == 0 {
		return -1, fn()
	}
	before, err := p.count(c)
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := p.count(c)
	return (after - before) / p.unit, err
}

// count looks up how often commands have taken effect.
func (p *probe) count(c command) (int, error) {
	s := shot{method: http.MethodGet, url: countURL(p.target.CountURL, c.fresh), header: p.target.header(false)}
	got, err := p.send("count", s)
	if err != nil {
		return 0, err
	}
	if !got.ok() {
		return 0, fmt.Errorf("the count can't be looked up: GET %s got %v", p.wire.censor.text(s.url), got.response)
	}
	start, end, err := find(got.body, p.target.Count)
	if err != nil {
		return 0, fmt.Errorf("the count can't be found in the response to GET %s: %w", p.wire.censor.text(s.url), err)
	}
	var n int
	var list []json.RawMessage
	value := got.body[start:end]
	if json.Unmarshal(value, &n) == nil {
		return n, nil
	}
	if json.Unmarshal(value, &list) == nil && list != nil {
		return len(list), nil
	}
	return 0, fmt.Errorf("the count is %.40q: it must be an integer or an array", value)
}
