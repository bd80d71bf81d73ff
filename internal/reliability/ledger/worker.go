//go:build linux

package ledger

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// The ways in which a command is sent.
const (
	ByDoTx  = "DoTx"               // its row and its response are committed together
	ByHeld  = "Do, held"           // a command with an unknown outcome is held
	ByRerun = "Do, run again"      // it runs again, and its downstream service supports keys
	ByHTTP  = "httponce, held"     // in a server that is killed
	ByProxy = "proxy, held"        // before a service that is not
	Plain   = "without protection" // the control
)

// The jobs of a process.
const (
	jobCall  = "call" // commands that come on standard input
	jobHTTP  = "http"
	jobProxy = "proxy"
)

// A commandRequest is a request to a process to run a command.
type commandRequest struct {
	N               int // numbers the requests to a process
	Way, Key, Token string
}

// A response is the response to a commandRequest.
type response struct {
	N        int
	Token    string
	Held     bool // the outcome is unknown
	Unstored bool // it could not be recorded
	Replayed bool
	Err      string // there is no result: repeat the request

	Address  string // of a server that listens from now on
	Outlived int64  // contexts of the process that outlived their lease
}

const jobVariable = "ONLYONCE_LEDGER"

// Worker does the job that the environment names, and reports whether it names one. A main
// function calls it first.
func Worker() bool {
	var job, store, upstream, dsn string
	if _, err := fmt.Sscan(os.Getenv(jobVariable), &job, &store, &upstream, &dsn); err != nil {
		return false
	}
	if err := work(job, upstream, Place{store, dsn}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func work(job, upstream string, p Place) error {
	b, err := Open(p)
	if err != nil {
		return err
	}
	defer b.Close()
	w := newWorker(b)
	switch job {
	case jobHTTP:
		return w.listen(httponce.Wrap(w.holdGuard, http.HandlerFunc(w.pay), settings))
	case jobProxy:
		where, err := url.Parse(upstream)
		if err != nil {
			return err
		}
		return w.listen(proxy.New([]proxy.Route{
			{Method: http.MethodPost, Pattern: "/", Upstream: &proxy.Upstream{URL: where}, Guard: w.holdGuard, Idempotency: settings},
		}, proxy.Config{}))
	}
	return w.respond()
}

// A worker runs commands.
type worker struct {
	*Database
	watch                 *watch
	holdGuard, rerunGuard *onlyonce.Guard
	doTx                  doTx
	mu                    sync.Mutex
	out                   *gob.Encoder
}

func newWorker(b *Database) *worker {
	w := &worker{Database: b, watch: newWatch(b.Store), out: gob.NewEncoder(os.Stdout)}
	w.holdGuard = onlyonce.New(w.watch, onlyonce.Config{Lease: lease, HoldUnknown: true, Observer: w.watch.observe})
	cfg := onlyonce.Config{Lease: lease, Observer: w.watch.observe}
	w.rerunGuard, w.doTx = onlyonce.New(w.watch, cfg), b.newDoTx(cfg)
	return w
}

// send writes a response to standard output.
func (w *worker) send(a response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.Outlived = w.watch.outlived.Load()
	_ = w.out.Encode(a)
}

func (w *worker) respond() error {
	w.send(response{Address: "ready"})
	var all sync.WaitGroup
	defer all.Wait()
	for in := gob.NewDecoder(os.Stdin); ; {
		var q commandRequest
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		all.Go(func() { w.send(w.response(q)) })
	}
}

func (w *worker) response(q commandRequest) response {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got onlyonce.Answer[string]
	var err error
	switch q.Way {
	case ByDoTx:
		got, err = w.doTx(ctx, q.Key, q.Token)
	case ByHeld:
		got, err = onlyonce.Do(ctx, w.holdGuard, request(q.Key), func(ctx context.Context) (string, error) {
			w.watch.simulateWork(ctx)
			// The row may be there although the server did not say so.
			return q.Token, onlyonce.Unknown(w.insertEntry(ctx, q.Key, q.Token))
		})
	case ByRerun:
		got, err = onlyonce.Do(ctx, w.rerunGuard, request(q.Key), func(ctx context.Context) (string, error) {
			w.watch.simulateWork(ctx)
			return w.insertOnce(ctx, q.Key, q.Token)
		})
	case Plain:
		got.Value, err = q.Token, w.insertEntry(ctx, q.Key, q.Token)
		time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond)))) // in which a kill loses the response
	}
	a := response{N: q.N, Token: got.Value, Replayed: got.Replayed}
	_, a.Unstored = w.watch.unstored.Load(q.Key)
	if a.Held = errors.Is(err, onlyonce.ErrUnknown); err != nil {
		a.Err, a.Token = err.Error(), ""
	}
	return a
}

// settings are used by the ways that use HTTP.
var settings = httponce.Config{
	Tenant:    func(*http.Request) string { return "ledger" },
	Operation: func(*http.Request) string { return "pay" },
	KeyFormat: httponce.KeyFormat{Chars: "abcdefghijklmnopqrstuvwxyz0123456789-"},
	Required:  true,
}

// tokenHeader carries the token of a request. A repeat has another token.
const tokenHeader = "X-Token"

// pay handles a payment: it inserts a row and responds with its token.
func (w *worker) pay(rw http.ResponseWriter, r *http.Request) {
	w.watch.simulateWork(r.Context())
	respondWithEntry(w.Database, rw, r)
}

// respondWithEntry inserts the row of a request. If that fails, it aborts the response, because
// the row may have been inserted.
func respondWithEntry(b *Database, rw http.ResponseWriter, r *http.Request) {
	token := r.Header.Get(tokenHeader)
	body, err := io.ReadAll(r.Body)
	if err != nil || b.insertEntry(r.Context(), string(body), token) != nil {
		panic(http.ErrAbortHandler)
	}
	rw.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(rw, token) // the client may be gone
}

// listen serves until standard input ends.
func (w *worker) listen(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := proxy.Server(h)
	s.ErrorLog = quiet
	go func() { _ = s.Serve(proxy.Listen(l, nil)) }()
	w.send(response{Address: "http://" + l.Addr().String()})
	go func() {
		for { // the count of contexts is sent until the end
			time.Sleep(50 * time.Millisecond)
			w.send(response{})
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
