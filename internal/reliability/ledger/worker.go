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
	ByHeld  = "Do, held"           // what nobody knows the outcome of is held
	ByRerun = "Do, run again"      // and with a downstream service that knows keys, run again
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

// An ask is a command for a process, or with a higher number the next one.
type ask struct {
	N               int
	Way, Key, Token string
}

// A response is what became of it.
type response struct {
	N        int
	Token    string
	Held     bool // nobody knows the outcome
	Unstored bool // it could not be recorded
	Replayed bool
	Err      string // nothing of it: repeat the request

	Address  string // of a server that listens from now on
	Outlived int64  // contexts of the process that outlived their lease
}

const jobVariable = "ONLYONCE_LEDGER"

// Worker does a job as it is told by the environment, and reports whether there
// was one. A main function calls it first.
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
		return w.listen(httponce.Wrap(w.hold, http.HandlerFunc(w.pay), settings))
	case jobProxy:
		where, err := url.Parse(upstream)
		if err != nil {
			return err
		}
		return w.listen(proxy.New([]proxy.Route{
			{Method: http.MethodPost, Pattern: "/", Upstream: &proxy.Upstream{URL: where}, Guard: w.hold, Idempotency: settings},
		}, proxy.Config{}))
	}
	return w.respond()
}

// A worker runs commands.
type worker struct {
	*Books
	watch       *watch
	hold, rerun *onlyonce.Guard
	doTx        doTx
	mu          sync.Mutex
	out         *gob.Encoder
}

func newWorker(b *Books) *worker {
	w := &worker{Books: b, watch: newWatch(b.Store), out: gob.NewEncoder(os.Stdout)}
	w.hold = onlyonce.New(w.watch, onlyonce.Config{Lease: lease, HoldUnknown: true, Observer: w.watch.observe})
	rerun := onlyonce.Config{Lease: lease, Observer: w.watch.observe}
	w.rerun, w.doTx = onlyonce.New(w.watch, rerun), b.newDoTx(rerun)
	return w
}

// tell writes a response; it never waits for a client that is gone.
func (w *worker) tell(a response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.Outlived = w.watch.outlived.Load()
	_ = w.out.Encode(a)
}

func (w *worker) respond() error {
	w.tell(response{Address: "ready"})
	var all sync.WaitGroup
	defer all.Wait()
	for in := gob.NewDecoder(os.Stdin); ; {
		var q ask
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		all.Go(func() { w.tell(w.response(q)) })
	}
}

func (w *worker) response(q ask) response {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got onlyonce.Answer[string]
	var err error
	switch q.Way {
	case ByDoTx:
		got, err = w.doTx(ctx, q.Key, q.Token)
	case ByHeld:
		got, err = onlyonce.Do(ctx, w.hold, request(q.Key), func(ctx context.Context) (string, error) {
			w.watch.works(ctx)
			// The row may be there although the server did not say so.
			return q.Token, onlyonce.Unknown(w.enter(ctx, q.Key, q.Token))
		})
	case ByRerun:
		got, err = onlyonce.Do(ctx, w.rerun, request(q.Key), func(ctx context.Context) (string, error) {
			w.watch.works(ctx)
			return w.keep(ctx, q.Key, q.Token)
		})
	case Plain:
		got.Value, err = q.Token, w.enter(ctx, q.Key, q.Token)
		time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond)))) // in which a kill loses the response
	}
	a := response{N: q.N, Token: got.Value, Replayed: got.Replayed}
	_, a.Unstored = w.watch.unstored.Load(q.Key)
	if a.Held = errors.Is(err, onlyonce.ErrUnknown); err != nil {
		a.Err, a.Token = err.Error(), ""
	}
	return a
}

// settings are those of the ways by HTTP.
var settings = httponce.Config{
	Tenant:    func(*http.Request) string { return "ledger" },
	Operation: func(*http.Request) string { return "pay" },
	KeyFormat: httponce.KeyFormat{Chars: "abcdefghijklmnopqrstuvwxyz0123456789-"},
	Required:  true,
}

// tokenHeader carries the token of a request: it differs from that of a repeat.
const tokenHeader = "X-Token"

// pay is the handler: it writes a row, and responds with its token.
func (w *worker) pay(rw http.ResponseWriter, r *http.Request) {
	w.watch.works(r.Context())
	enter(w.Books, rw, r)
}

// enter writes the row of a request, or gives no response: the row may be there.
func enter(b *Books, rw http.ResponseWriter, r *http.Request) {
	token := r.Header.Get(tokenHeader)
	body, err := io.ReadAll(r.Body)
	if err != nil || b.enter(r.Context(), string(body), token) != nil {
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
	w.tell(response{Address: "http://" + l.Addr().String()})
	go func() {
		for { // what the contexts do is told until the end
			time.Sleep(50 * time.Millisecond)
			w.tell(response{})
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
