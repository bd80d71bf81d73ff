package conform

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// A probe is one run against a target, with the properties of the target that it has found.
type probe struct {
	ctx    context.Context
	target Target
	bodies *bodyGenerator
	client *client
	burst  int

	progress func(row Row, n, of int) // may be nil

	quoteKeys bool // keys are sent in quotes

	// The responses to one command (first), to the same body under another key (second)
	// and to a repeat of the first.
	command               command
	first, second, repeat response
	firstExchanges        []Exchange
	repeatRuns            int // how often the repeat took effect; -1: not counted

	perRun      int      // how much the count grows per run; 0: nothing is counted
	marker      string   // the name of the header that marks a replay
	identity    []string // the parts of a response that are specific to one run
	detectsRuns bool     // a second run can be told from a replay
	replays     bool

	rejected []recordedResponse // the result of rejections; nil: not called yet
	byBody   *bool              // the result of recordsByBody; nil: not called yet
}

// A command is a body and the key under which it is sent.
type command struct {
	key   string
	body  []byte
	fresh string
}

// A recordedResponse is a response with the exchange that shows it in a report.
type recordedResponse struct {
	response
	exchange Exchange
}

// newCommand returns a command with a new key and, if bodies vary, a new body.
func (p *probe) newCommand() command {
	body, fresh, err := p.bodies.next()
	if err != nil {
		panic(err) // newBodyGenerator has generated one
	}
	return command{key: newKey(), body: body, fresh: fresh}
}

// formatKey returns a key as it is sent: in quotes if the target requires them.
func (p *probe) formatKey(key string) string {
	if p.quoteKeys {
		return `"` + key + `"`
	}
	return key
}

// commandRequest returns the request for a command.
func (p *probe) commandRequest(c command) request { return p.rawRequest(c.body, p.formatKey(c.key)) }

// rawRequest returns a request with a body and the given lines of the key's header.
func (p *probe) rawRequest(body []byte, keys ...string) request {
	return request{
		method: p.target.Method, url: p.target.URL, header: p.target.header(false),
		keyHeader: p.target.KeyHeader, keys: keys, body: body,
	}
}

// sendOnce sends a request and returns its response.
func (p *probe) sendOnce(note string, s request) (recordedResponse, error) {
	c, err := p.client.open(p.ctx, s)
	if err != nil {
		return recordedResponse{}, err
	}
	c.write(0)
	a := c.response()
	return recordedResponse{a, c.exchange(note, a)}, p.ctx.Err()
}

// send sends a request and returns its response. If the status is 429, it retries twice; a
// third 429 is an error, because the API can't be checked.
func (p *probe) send(note string, s request) (a recordedResponse, err error) {
	for range 3 {
		if a, err = p.sendOnce(note, s); err != nil || a.status != http.StatusTooManyRequests {
			return a, err
		}
		if err := p.sleep(a.retryAfter(time.Second)); err != nil {
			return a, err
		}
	}
	return a, fmt.Errorf("%s %s keeps responding with 429: raise its limit for the check", s.method, p.client.redactor.redactText(s.url))
}

// sendCommand sends a command's request.
func (p *probe) sendCommand(note string, c command) (recordedResponse, error) {
	return p.send(note, p.commandRequest(c))
}

// sendNewCommand sends a new command's request. It is an error if that does not succeed,
// because then later responses prove nothing.
func (p *probe) sendNewCommand(note string, c command) (recordedResponse, error) {
	a, err := p.sendCommand(note, c)
	if err == nil && !a.ok() {
		err = fmt.Errorf("a command with a new key got %v, where a success was expected", a.response)
	}
	return a, err
}

// retryUntilSuccess sends a command's request until its response reports success,
// at most ten times and no longer than the timeout of one request. It returns the last
// response. It does not wait for as long as a Retry-After says, since that is a guess.
func (p *probe) retryUntilSuccess(note string, c command) (a recordedResponse, err error) {
	wait := 50 * time.Millisecond
	end := time.Now().Add(p.client.timeout)
	for range 10 {
		if a, err = p.sendOnce(note, p.commandRequest(c)); err != nil || a.ok() || time.Now().After(end) {
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

// delays returns three moments while a command runs: half of its duration, an eighth of
// it, and 0.
func (p *probe) delays() []time.Duration {
	half := min(p.first.duration, p.second.duration, time.Second) / 2
	return []time.Duration{half, half / 4, 0}
}

// countRuns calls fn and returns how often the command took effect during the call, or
// -1 if nothing is counted.
func (p *probe) countRuns(c command, fn func() error) (runs int, err error) {
	if p.perRun == 0 {
		return -1, fn()
	}
	before, err := p.readCount(c)
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := p.readCount(c)
	return (after - before) / p.perRun, err
}

// readCount returns the count at the target's CountURL.
func (p *probe) readCount(c command) (int, error) {
	s := request{method: http.MethodGet, url: countURL(p.target.CountURL, c.fresh), header: p.target.header(false)}
	got, err := p.send("count", s)
	if err != nil {
		return 0, err
	}
	if !got.ok() {
		return 0, fmt.Errorf("the count can't be looked up: GET %s got %v", p.client.redactor.redactText(s.url), got.response)
	}
	start, end, err := findValue(got.body, p.target.Count)
	if err != nil {
		return 0, fmt.Errorf("the count can't be found in the response to GET %s: %w", p.client.redactor.redactText(s.url), err)
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
