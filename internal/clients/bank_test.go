// Package clients_test runs the clients of docs/client.md and docs/examples against a server
// whose responses get lost.
package clients_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A payment is a command of a bank.
type payment struct {
	Note   string `json:"note"`   // what happens to its requests: the name of a row of the table
	Amount int    `json:"amount"` // 0 gets a 400, and -1 a 409
}

// A call is what a bank has seen of one payment.
type call struct {
	keys    []string // of its requests
	bodies  []string
	runs    int
	running chan struct{} // closed when the payment runs, if it is to wait for goOn
	goOn    chan struct{} // nil: the payment does not wait
	ended   chan struct{}
}

// A bank makes payments. Its handler is protected by httponce, and a fault happens to each of a
// payment's first requests.
type bank struct {
	url       string
	protected http.Handler
	faults    map[string][]fault // by the note of a payment

	mu    sync.Mutex
	calls map[string]*call // by the note of a payment
}

// A closing listener closes its first three connections before anything is read, as a load balancer
// without a server does.
type closing struct {
	net.Listener
	closed int
}

func (l *closing) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.closed == 3 {
			return conn, err
		}
		l.closed++
		_ = conn.Close()
	}
}

// A fault is what happens to a request instead of the response of the handler.
type fault func(b *bank, c *call, w http.ResponseWriter, r *http.Request)

// used is a key with which a payment was made that no test makes.
const used = "used-before"

func newBank(t *testing.T, faults map[string][]fault) *bank {
	t.Helper()
	b := &bank{faults: faults, calls: map[string]*call{}}
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
	b.protected = httponce.Wrap(guard, http.HandlerFunc(b.pay), httponce.Config{Tenant: httponce.SingleTenant, Required: true})
	first := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte(`{"note":"another"}`)))
	first.Header.Set("Idempotency-Key", used)
	b.protected.ServeHTTP(httptest.NewRecorder(), first)
	server := httptest.NewUnstartedServer(b)
	server.Listener = &closing{Listener: server.Listener}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b.url = server.URL
	return b
}

// pay is the handler that must run once for each payment.
func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := b.call(p.Note)
	b.mu.Lock()
	c.runs++
	run, running, goOn := c.runs, c.running, c.goOn
	b.mu.Unlock()
	if goOn != nil {
		close(running)
		<-goOn
	}
	w.Header().Set("Content-Type", "application/json")
	switch p.Amount {
	case 0:
		w.WriteHeader(http.StatusBadRequest)
	case -1:
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusCreated)
	}
	fmt.Fprintf(w, `{"note":%q,"run":%d}`, p.Note, run)
}

// call returns what the bank has seen of a payment.
func (b *bank) call(note string) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls[note] == nil {
		b.calls[note] = &call{}
	}
	return b.calls[note]
}

// ServeHTTP receives the requests of a client.
func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var p payment
	if err := json.Unmarshal(body, &p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := b.call(p.Note)
	b.mu.Lock()
	n := len(c.keys)
	c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
	c.bodies = append(c.bodies, string(body))
	b.mu.Unlock()
	if faults := b.faults[p.Note]; n < len(faults) {
		faults[n](b, c, w, r)
		return
	}
	b.protected.ServeHTTP(w, r)
}

// run runs the request, and returns its response without sending it.
func (b *bank) run(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.protected.ServeHTTP(w, r)
	return w
}

// closes closes the connection and runs nothing.
func closes(*bank, *call, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// loses runs the request and closes the connection without a response.
func loses(b *bank, _ *call, _ http.ResponseWriter, r *http.Request) {
	b.run(r)
	panic(http.ErrAbortHandler)
}

// truncates runs the request and closes the connection in the middle of the response's body.
func truncates(b *bank, _ *call, w http.ResponseWriter, r *http.Request) {
	b.sendHalf(w, r)
	panic(http.ErrAbortHandler)
}

// stalls runs the request, sends half of the response, and then nothing until the client has gone.
func stalls(b *bank, _ *call, w http.ResponseWriter, r *http.Request) {
	b.sendHalf(w, r)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func (b *bank) sendHalf(w http.ResponseWriter, r *http.Request) {
	made := b.run(r)
	for name, values := range made.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", fmt.Sprint(made.Body.Len()))
	w.WriteHeader(made.Code)
	_, _ = w.Write(made.Body.Bytes()[:made.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
}

// hints sends an informational response first.
func hints(b *bank, _ *call, w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusEarlyHints)
	b.protected.ServeHTTP(w, r)
}

// compresses sends a compressed response, which is longer than the original, as short ones are.
func compresses(b *bank, _ *call, w http.ResponseWriter, r *http.Request) {
	made := b.run(r)
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	_, _ = z.Write(made.Body.Bytes())
	_ = z.Close()
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", fmt.Sprint(body.Len()))
	w.WriteHeader(made.Code)
	_, _ = w.Write(body.Bytes())
}

// leavesRunning closes the connection while the payment runs.
func leavesRunning(b *bank, c *call, _ http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	c.running, c.goOn, c.ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.mu.Unlock()
	go func() {
		defer close(c.ended)
		b.run(r.Clone(context.WithoutCancel(r.Context())))
	}()
	<-c.running
	panic(http.ErrAbortHandler)
}

// isRunning sends the response to a request during the first one, and then lets that one end.
func isRunning(b *bank, c *call, w http.ResponseWriter, r *http.Request) {
	b.protected.ServeHTTP(w, r)
	close(c.goOn)
	<-c.ended
}

// reuses gives the request a key that was used for another one.
func reuses(b *bank, _ *call, w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Idempotency-Key", used)
	b.protected.ServeHTTP(w, r)
}

// answers runs nothing, and sends a status and headers.
func answers(status int, header ...string) fault {
	return func(_ *bank, _ *call, w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "{}")
	}
}

// fromNow is the date after a duration.
func fromNow(d time.Duration) string { return time.Now().UTC().Add(d).Format(http.TimeFormat) }
