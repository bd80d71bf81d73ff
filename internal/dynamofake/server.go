// Package dynamofake is a fake of DynamoDB for the tests of several modules. It has what the
// emulator Dynalite lacks: TransactWriteItems with the reasons of its cancellation, the item
// that a condition was checked against, a time to live that can be turned on, and what goes
// wrong in DynamoDB: errors, lost responses and wrong Dates. It has only the operations, the
// expressions and the kinds of keys that Onlyonce's stores and their tests use, and keeps
// everything in memory, unless it has a journal. A test compares it with Dynalite, where that can do the same.
package dynamofake

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Server is a fake that listens on a loopback port.
type Server struct {
	Address string // HOST:PORT

	// Requests counts those that have arrived, and OldItems the items that were returned with
	// a failed condition.
	Requests, OldItems atomic.Int64

	// MostBytes is how many bytes the items of a transaction may have together. A test may
	// change it before the first request. Default: 4 MB, DynamoDB's.
	MostBytes int

	http *httptest.Server // nil: somebody else listens

	mu      sync.Mutex // also makes every operation one step
	tables  map[string]*table
	rng     *rand.Rand
	faults  Faults
	journal *os.File // nil: there is none
}

// Faults are functions that inject faults. A nil function does nothing. They are called one at a time.
type Faults struct {
	// Fail returns the code of the error that an operation gets instead of a response; "":
	// none. For TransactWriteItems, it may also be the code of a reason for the cancellation.
	Fail func(rng *rand.Rand, operation string) string

	// Lose reports whether the response is lost after the request took effect.
	Lose func(rng *rand.Rand, operation string) bool

	// Date returns the Date of a response.
	Date func(rng *rand.Rand, date time.Time) time.Time

	// Done is called after a request took effect, and before its response is sent or lost.
	Done func(operation string)
}

// Start starts a server, which lasts until it is closed.
func Start() *Server {
	s, err := New("")
	if err != nil {
		panic(err) // only a journal can fail
	}
	s.http = httptest.NewServer(s)
	s.Address = strings.TrimPrefix(s.http.URL, "http://")
	return s
}

// Close ends the server.
func (s *Server) Close() { s.http.Close() }

// Inject replaces the faults.
func (s *Server) Inject(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// A failure takes the place of a response.
type failure struct {
	Type    string   `json:"__type"`
	Message string   `json:"message"`
	Item    item     `json:"Item,omitempty"`
	Reasons []reason `json:"CancellationReasons,omitempty"`
}

func (f *failure) Error() string { return f.Type + ": " + f.Message }

func fail(code, message string) *failure { return &failure{Type: code, Message: message} }

// A reason says why one item of a transaction was canceled.
type reason struct {
	Code    string
	Message string `json:",omitempty"`
	Item    item   `json:",omitempty"`
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		return
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	response, failed, done, lost, date := s.serve(operation, body)
	if done != nil {
		done(operation)
	}
	if lost {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amzn-Requestid", "fake")
	w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
	if failed != nil {
		status := http.StatusBadRequest
		if failed.Type == "InternalServerError" {
			status = http.StatusInternalServerError
		}
		failed.Type = "com.amazonaws.dynamodb.v20120810#" + failed.Type
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(failed)
		return
	}
	_ = json.NewEncoder(w).Encode(response)
}

// serve executes a request, in one step.
func (s *Server) serve(operation string, body []byte) (response any, failed *failure, done func(string), lost bool, date time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Requests.Add(1)
	date = time.Now()
	if s.faults.Date != nil {
		date = s.faults.Date(s.rng, date)
	}
	if s.faults.Fail != nil {
		if code := s.faults.Fail(s.rng, operation); code != "" {
			return nil, s.injected(code, body), nil, false, date
		}
	}
	do, ok := operations[operation]
	if !ok {
		return nil, fail("UnknownOperationException", "the fake has no "+operation), nil, false, date
	}
	if response, failed = do(s, body); failed == nil {
		s.note(operation, json.RawMessage(body))
	}
	lost = s.faults.Lose != nil && s.faults.Lose(s.rng, operation)
	return response, failed, s.faults.Done, lost, date
}

// injected returns an error of a code. Some are reasons that one item of a transaction has.
func (s *Server) injected(code string, body []byte) *failure {
	switch code {
	case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		r, failed := read(body)
		if failed != nil {
			return failed
		}
		reasons := make([]reason, len(r.TransactItems))
		for i := range reasons {
			reasons[i].Code = "None"
		}
		reasons[s.rng.IntN(len(reasons))] = reason{Code: code, Message: "injected"}
		return canceled(reasons)
	}
	return fail(code, "injected")
}

func canceled(reasons []reason) *failure {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = r.Code
	}
	f := fail("TransactionCanceledException", "Transaction cancelled, please refer cancellation reasons for specific reasons ["+strings.Join(codes, ", ")+"]")
	f.Reasons = reasons
	return f
}
