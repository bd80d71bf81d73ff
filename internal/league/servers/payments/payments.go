// Package payments is the command that the implementations of the league protect: a payment, which
// takes a moment, as a call to a provider does. It knows nothing of idempotency.
package payments

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// duration is how long a payment takes. The check sends repeats in the meantime.
const duration = 60 * time.Millisecond

// AccountHeader is the header that names the account of a caller. It stands for the result of
// authentication.
const AccountHeader = "X-Account"

// Account returns the account of a request.
func Account(r *http.Request) string { return r.Header.Get(AccountHeader) }

// A Payment is a payment or a refund that was made.
type Payment struct {
	ID        string `json:"id"`
	Operation string `json:"operation"`
	Amount    int    `json:"amount"`
	Currency  string `json:"currency"`
	Reference string `json:"reference"`
}

// Location is the path of the payment.
func (p Payment) Location() string { return "/" + p.Operation + "/" + p.ID }

// Cookie is the cookie of the caller's session, which is another one after each payment.
func (p Payment) Cookie() string { return "session=of-" + p.ID + "; HttpOnly" }

// errInvalid is the error of a body that is no payment.
var errInvalid = errors.New(`send {"amount": 1250, "currency": "EUR", "reference": "TEXT"}`)

// A Ledger has the payments that were made.
type Ledger struct {
	mu          sync.Mutex
	made        int
	byReference map[string]int
}

// NewLedger returns a Ledger without payments.
func NewLedger() *Ledger { return &Ledger{byReference: map[string]int{}} }

// Pay makes the payment, or the refund, that is described by the body. An error means that the body
// is invalid and that nothing was paid.
func (l *Ledger) Pay(operation string, body []byte) (Payment, error) {
	p := Payment{Operation: operation}
	if err := json.Unmarshal(body, &p); err != nil || p.Amount <= 0 || p.Currency == "" || p.Reference == "" {
		return p, errInvalid
	}
	time.Sleep(duration)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	l.byReference[p.Reference]++
	p.ID = "pay-" + strconv.Itoa(l.made)
	return p, nil
}

// Count returns how many payments were made with a reference.
func (l *Ledger) Count(reference string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byReference[reference]
}

// Made returns how many payments were made.
func (l *Ledger) Made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// Post returns the handler of an operation.
func (l *Ledger) Post(operation string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			reply(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		p, err := l.Pay(operation, body)
		if err != nil {
			reply(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		w.Header().Set("Location", p.Location())
		w.Header().Set("Set-Cookie", p.Cookie())
		reply(w, http.StatusCreated, p)
	})
}

// Get adds the handlers that say how many payments were made.
func (l *Ledger) Get(mux *http.ServeMux) {
	mux.HandleFunc("GET /payments", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]int{"made": l.Made()})
	})
	mux.HandleFunc("GET /payments/count", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]int{"count": l.Count(r.FormValue("reference"))})
	})
}

// Handler returns the handler of all operations.
func (l *Ledger) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", l.Post("payments"))
	mux.Handle("POST /refunds", l.Post("refunds"))
	l.Get(mux)
	return mux
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err)
	}
}

// Listen returns a listener on a free port, and prints its URL for the program of the league.
func Listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	return listener
}

// Serve serves a handler until the process is killed.
func Serve(h http.Handler) { log.Fatal(http.Serve(Listen(), h)) }
