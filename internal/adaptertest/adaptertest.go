// Package adaptertest tests the rules that every adapter to a web framework keeps. The test of
// an adapter builds an application of its framework, whose handler does what the suite asks
// for in the framework's own way.
package adaptertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// An Adapter is what the suite has to know about an adapter.
type Adapter struct {
	// New returns an application with one route for the methods POST and GET, Route, which has
	// the account as its parameter. In this order, the application has:
	//   - the framework's recovery, if App.Recovery is Outside
	//   - a middleware that puts the header X-Account into the framework's context, from where
	//     the adapter's Tenant takes it, sets the header X-Outer to App.Outer, and reads the
	//     body and puts it back
	//   - the adapter, with App.Guard or, for the route's handler, with App.Tx
	//   - a middleware that sets the header X-Inner to App.Inner
	//   - the framework's recovery, if App.Recovery is Inside
	//   - a handler that binds the body twice, passes it to App.Handle, and does what
	//     the Action says
	// The handler of App.Tx binds the body, puts it into the row "order" of its Tx, and then does
	// the same, without the inner middleware.
	New func(t *testing.T, app App) http.Handler
	// Serve is instead of New for a framework that is not built on net/http: it serves the
	// application until the end of the test and returns its URL.
	Serve func(t *testing.T, app App) (url string)
	// Route is the pattern of the route as the framework writes it.
	Route string
	// NoPanic says that a panic that nothing recovers ends the process.
	NoPanic bool
	// NoRecoveryInside says that the adapter rejects a recovery inside of it.
	NoRecoveryInside bool
	// NoStream says that the adapter sends a response only as a whole.
	NoStream bool
	// NoRequest says that the handler has no request of net/http.
	NoRequest bool
	// NoTx says that there is no handler in a transaction.
	NoTx bool
}

// An App is an application that the suite tests.
type App struct {
	Guard    *onlyonce.Guard
	Tx       *onlyonce.TxGuard[Tx] // nil: the route has the middleware, with Guard
	Config   httponce.Config       // has no Tenant
	Recovery Position
	Handle   func(Call) Action
	Outer    func() string
	Inner    func() string
}

// A Position tells where the framework's recovery is.
type Position string

// These are the positions.
const (
	Nowhere Position = ""
	Outside Position = "outside"
	Inside  Position = "inside"
)

// A Call is what the handler was called with.
type Call struct {
	Note    string          // of the body, {"note": …}
	Context context.Context // of the request
	Request *http.Request   // for the functions of httponce; nil: there is none
	// Respond responds as an Action with a Status does, at once.
	Respond func(status int, body string)
}

// An Action is what the handler does.
type Action struct {
	Panic  any      // the value to panic with
	Err    error    // the text of an error of the framework's own kind, with which it responds with 500; nothing else is written
	Chunks []string // the response is 200, and flushed after each
	Status int      // of a response with Body as JSON
	Body   string
}

// A shop has a store and an application that counts its runs.
type shop struct {
	t     *testing.T
	store *Store
	guard *onlyonce.TxGuard[Tx]
	app   App
	url   string

	ended chan onlyonce.Event // gets the first event

	mu   sync.Mutex
	runs int
}

// newShop starts an application. change may change it before.
func (a Adapter) newShop(t *testing.T, cfg onlyonce.Config, change func(*shop)) *shop {
	t.Helper()
	s := &shop{t: t, store: NewStore(), ended: make(chan onlyonce.Event, 1)}
	cfg.Observer = func(_ context.Context, e onlyonce.Event) {
		select {
		case s.ended <- e:
		default:
		}
	}
	s.guard = onlyonce.NewTx(s.store, cfg)
	var outer, inner counter
	s.app = App{Guard: s.guard.Guard, Outer: outer.next, Inner: inner.next}
	if change != nil {
		change(s)
	}
	if s.app.Tx != nil {
		s.app.Tx = s.guard
	}
	handle := s.app.Handle
	s.app.Handle = func(c Call) Action {
		s.mu.Lock()
		s.runs++
		n := s.runs
		s.mu.Unlock()
		if handle != nil {
			if act := handle(c); act.Status != 0 || act.Err != nil || act.Panic != nil || act.Chunks != nil {
				return act
			}
		}
		return Action{Status: http.StatusCreated, Body: `{"note":"` + c.Note + `","run":"` + strings.Repeat("I", n) + `"}`}
	}
	if a.Serve != nil {
		s.url = a.Serve(t, s.app)
		return s
	}
	server := httptest.NewUnstartedServer(a.New(t, s.app))
	server.Config.ErrorLog = quiet
	server.Start()
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// A counter returns a different text each time.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return strings.Repeat("*", c.n)
}

// A reply is a response.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) replayed() bool { return r.header.Get("Idempotency-Replayed") == "true" }

// send sends a request of an account to the route. err is that of the connection.
func (s *shop) send(ctx context.Context, method, account, key, note string) (reply, error) {
	s.t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(`{"note":"` + note + `"}`)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+"/accounts/"+account+"/charges?from=test", body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if account != "nobody" {
		r.Header.Set("X-Account", account)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return do(r)
}

func do(r *http.Request) (reply, error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

// post sends a command that gets a response.
func (s *shop) post(account, key, note string) reply {
	s.t.Helper()
	got, err := s.send(s.t.Context(), http.MethodPost, account, key, note)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func (s *shop) wantRuns(n int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs != n {
		s.t.Errorf("%d runs, want %d", s.runs, n)
	}
}

// wantReply fails unless the reply has this status and body, and is a replay or not.
func (s *shop) wantReply(got reply, status int, body string, replayed bool) {
	s.t.Helper()
	if got.status != status || !strings.Contains(got.body, body) || got.replayed() != replayed {
		s.t.Errorf("got %d %q, replayed %v, want %d %q, replayed %v", got.status, got.body, got.replayed(), status, body, replayed)
	}
}

// record returns the record of account 7's key k, whose operation is the route.
func (a Adapter) record(s *shop) onlyonce.Record {
	s.t.Helper()
	rec, err := s.store.Lookup(s.t.Context(), onlyonce.ID{Tenant: "7", Operation: "POST " + a.Route, Key: "k"})
	if err != nil {
		s.t.Fatal(err)
	}
	return rec
}

// wantState fails unless the record of key k is in a state.
func (a Adapter) wantState(s *shop, want onlyonce.State) {
	s.t.Helper()
	if rec := a.record(s); rec.State != want {
		s.t.Errorf("the record is %s (%s), want %s", rec.State, rec.Error, want)
	}
}

// RunExample tests the application of an example: a charge that is sent again gets the first
// response, and so does nobody else.
func RunExample(t *testing.T, app http.Handler) {
	server := httptest.NewServer(app)
	defer server.Close()
	RunExampleAt(t, server.URL)
}

// RunExampleAt is RunExample for an application that is served at a URL.
func RunExampleAt(t *testing.T, url string) {
	s := &shop{t: t}
	send := func(account, key, body string) reply {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/accounts/7/charges", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "X-Account": {account}, "Idempotency-Key": {key}}
		got, err := do(r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for repeat := range 2 {
		s.wantReply(send("7", "k", `{"amount":5}`), 201, `"amount":5`, repeat > 0)
		s.wantReply(send("7", "", `{"amount":5}`), 400, "", false)
		s.wantReply(send("8", "k", `{"amount":5}`), 401, "", false)
		s.wantReply(send("7", "k", `{"amount":6}`), 422, "", false)
	}
}
