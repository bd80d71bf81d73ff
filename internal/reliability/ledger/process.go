//go:build linux

package ledger

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

var quiet = log.New(io.Discard, "", 0)

// A process is a child process that runs commands and may be killed at any time.
type process struct {
	*faults.Child
	job      string
	ready    chan struct{} // closed once the process takes commands
	address  string        // of a server, once it is ready
	http     *http.Client
	outlived int64

	mu      sync.Mutex
	out     *gob.Encoder
	n       int
	waiting map[int]chan response
}

var errGone = errors.New("the process has ended")

// start starts a process.
func start(job, upstream string, p Place, client *http.Client) (*process, error) {
	child, err := faults.Start(jobVariable, fmt.Sprintf("%s %s %s %s", job, p.Store, upstream, p.DSN))
	if err != nil {
		return nil, err
	}
	c := &process{Child: child, job: job, ready: make(chan struct{}), http: client, out: gob.NewEncoder(child.In), waiting: make(map[int]chan response)}
	go c.listen()
	return c, nil
}

func (c *process) listen() {
	for in := gob.NewDecoder(c.Out); ; {
		var a response
		if err := in.Decode(&a); err != nil {
			break
		}
		c.mu.Lock()
		c.outlived = max(c.outlived, a.Outlived)
		if a.Address != "" {
			c.address = a.Address
			close(c.ready)
		}
		if waiting := c.waiting[a.N]; waiting != nil {
			waiting <- a
			delete(c.waiting, a.N)
		}
		c.mu.Unlock()
	}
	c.Wait()
}

// send sends a command, and returns an error if there is no response.
func (c *process) send(ctx context.Context, way, key, token string) (response, error) {
	select {
	case <-c.ready:
	case <-c.Ended:
		return response{}, errGone
	case <-ctx.Done():
		return response{}, ctx.Err()
	}
	if c.job != jobCall {
		return c.post(ctx, key, token)
	}
	waiting := make(chan response, 1)
	c.mu.Lock()
	c.n++
	n := c.n
	c.waiting[n] = waiting
	err := c.out.Encode(commandRequest{n, way, key, token})
	c.mu.Unlock()
	if err != nil {
		return response{}, err
	}
	select {
	case a := <-waiting:
		if a.Err != "" && !a.Held {
			return a, errors.New(a.Err)
		}
		return a, nil
	case <-c.Ended:
		return response{}, errGone
	case <-ctx.Done():
		return response{}, ctx.Err()
	}
}

// post sends a command over HTTP.
func (c *process) post(ctx context.Context, key, token string) (response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address+"/", strings.NewReader(key))
	if err != nil {
		return response{}, err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set(tokenHeader, token)
	resp, err := c.http.Do(r)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return response{}, err
	case resp.StatusCode == http.StatusCreated:
		return response{Token: string(body), Unstored: resp.Header.Get("Idempotency-Expires") == "", Replayed: resp.Header.Get("Idempotency-Replayed") != ""}, nil
	case resp.StatusCode == http.StatusConflict && strings.Contains(string(body), "outcome_unknown"):
		return response{Held: true}, nil
	}
	return response{}, fmt.Errorf("%s: %s", resp.Status, body)
}

// newClient returns an HTTP client that gives up a request to a dead process.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Second}, Timeout: time.Minute}
}
