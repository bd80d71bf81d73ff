package orders

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func TestOrders_TheFirstTimeTheCommandRunsOnce(t *testing.T) {
	eachEngine(t, func(w *world) {
		got := w.place("k1")
		if got.replayed() || w.orders() != 1 || w.record("anonymous", "k1").Result.Ref != got.order.ID {
			w.t.Errorf("%s %v, %d orders", got.Body, got.Header, w.orders())
		}
	})
}

func TestOrders_ARepeatGetsTheStoredResponseAlsoAfterARestart(t *testing.T) {
	eachEngine(t, func(w *world) {
		first := w.place("k1")
		same(w.t, first, w.place("k1"))
		w.api = w.open(w.store)
		same(w.t, first, w.place("k1"))
		if n := w.orders(); n != 1 {
			w.t.Errorf("%d orders", n)
		}
	})
}

func TestOrders_TheSameKeyWithAnotherHashIsRejected(t *testing.T) {
	eachEngine(t, func(w *world) {
		first := w.place("k1")
		other := w.send("POST", "/orders", strings.Replace(two, `"quantity":2`, `"quantity":3`, 1), key, "k1")
		other.want(w.t, 422, "idempotency_key_reused")
		if strings.Contains(other.Body, first.order.ID) || other.replayed() {
			w.t.Errorf("it tells of the first: %s", other.Body)
		}
		same(w.t, first, w.place("k1"))
	})
}

// hold holds the commands of an API until let goes.
func (w *world) hold(change ...func(*Config)) (held *apitest.Held, let func()) {
	held = apitest.Hold(w.store)
	w.api = w.open(held, change...)
	return held, sync.OnceFunc(func() { close(held.LetGo) })
}

// start sends a create that is held.
func (w *world) start(held *apitest.Held, k string) (answered chan reply) {
	answered = make(chan reply, 1)
	go func() { answered <- w.send("POST", "/orders", two, key, k) }()
	<-held.Running
	return answered
}

func TestOrders_WhileTheCommandRunsARepeatAndAnotherHashAreRejected(t *testing.T) {
	eachEngine(t, func(w *world) {
		held, let := w.hold()
		defer let()
		first := w.start(held, "k1")
		again := w.send("POST", "/orders", two, key, "k1")
		again.want(w.t, 409, "request_in_progress")
		if after, err := strconv.Atoi(again.Header.Get("Retry-After")); err != nil || after < 1 || !again.problem.Retryable {
			w.t.Errorf("Retry-After %q, %s", again.Header.Get("Retry-After"), again.Body)
		}
		w.send("POST", "/orders", two, key, "k1", "Prefer", "wait=0").want(w.t, 409, "request_in_progress")
		w.send("POST", "/orders", strings.Replace(two, "PO-7", "PO-8", 1), key, "k1").want(w.t, 422, "idempotency_key_reused")
		let()
		same(w.t, <-first, w.place("k1"))
	})
}

func TestOrders_WhileAnotherServerRunsTheCommandARepeatIsRejected(t *testing.T) {
	for _, engine := range []string{"postgres", "mysql"} { // SQLite has one writer, for which a repeat waits
		t.Run(engine, func(t *testing.T) {
			on := apitest.NewDatabase(t, engine)
			w, other := openWorld(t, on), openWorld(t, on)
			held, let := w.hold()
			defer let()
			first := w.start(held, "k1")
			other.send("POST", "/orders", two, key, "k1").want(t, 409, "request_in_progress")
			other.send("POST", "/orders", strings.Replace(two, "PO-7", "PO-8", 1), key, "k1").want(t, 422, "idempotency_key_reused")
			again := make(chan reply, 1)
			go func() { again <- other.send("POST", "/orders", two, key, "k1", "Prefer", "wait=60") }()
			let()
			made, repeat := <-first, <-again
			if made.Status != 201 || repeat.Status != 201 || made.Body != repeat.Body || w.orders() != 1 {
				t.Errorf("%s and %s, %d orders", made.Body, repeat.Body, w.orders())
			}
		})
	}
}

func TestOrders_ACallerThatPrefersToWaitGetsTheStoredResponse(t *testing.T) {
	eachEngine(t, func(w *world) {
		waits := make(chan struct{})
		held, let := w.hold(func(c *Config) {
			c.Observer = func(_ context.Context, e onlyonce.Event) {
				if e.Outcome == onlyonce.OutcomeWaited {
					close(waits)
				}
			}
		})
		defer let()
		first := w.start(held, "k1")
		again := make(chan reply, 1)
		go func() { again <- w.send("POST", "/orders", two, key, "k1", "Prefer", "wait=60") }()
		<-waits
		let()
		same(w.t, <-first, <-again)
		if n := w.orders(); n != 1 {
			w.t.Errorf("%d orders", n)
		}
	})
}

func TestOrders_AWaitIsCappedByTheServer(t *testing.T) {
	eachEngine(t, func(w *world) {
		held, let := w.hold(func(c *Config) { c.MaxWait = 30 * time.Millisecond })
		defer let()
		first := w.start(held, "k1")
		began := time.Now()
		w.send("POST", "/orders", two, key, "k1", "Prefer", "wait=3600").want(w.t, 409, "request_in_progress")
		if waited := time.Since(began); waited < 30*time.Millisecond || waited > 10*time.Minute {
			w.t.Errorf("it waited %v", waited)
		}
		let()
		<-first
	})
}

func TestOrders_AfterTheLeaseOfADeadProcessTheNextAttemptTakesOver(t *testing.T) {
	eachEngine(t, func(w *world) {
		d, err := parseDraft([]byte(two))
		if err != nil {
			w.t.Fatal(err)
		}
		print, err := d.fingerprint()
		if err != nil {
			w.t.Fatal(err)
		}
		id := onlyonce.ID{Tenant: "anonymous", Operation: "CreateOrder", Key: "k1"}
		dead, err := w.store.Claim(w.t.Context(), onlyonce.Claim{ID: id, Owner: "0123456789abcdef", Fingerprint: print, Lease: time.Hour})
		if err != nil {
			w.t.Fatal(err)
		}
		w.send("POST", "/orders", two, key, "k1").want(w.t, 409, "request_in_progress")
		if err := w.lapse(id); err != nil {
			w.t.Fatal(err)
		}
		got := w.send("POST", "/orders", two, key, "k1")
		rec := w.record("anonymous", "k1")
		if got.Status != 201 || got.replayed() || rec.Attempt != 2 || rec.Fence <= dead.Fence {
			w.t.Errorf("%d %s; attempt %d, fence %d after %d", got.Status, got.Body, rec.Attempt, rec.Fence, dead.Fence)
		}
		late := onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(`{"status":201,"body":{}}`)}, Keep: time.Hour}
		if err := w.store.Settle(w.t.Context(), onlyonce.Hold{ID: id, Owner: dead.Owner, Fence: dead.Fence}, late); !errors.Is(err, onlyonce.ErrLost) {
			w.t.Errorf("the late response: %v", err)
		}
		same(w.t, got, w.place("k1"))
	})
}

// without takes the table of orders away while fn runs, so that the handler
// returns an error.
func (w *world) without(fn func()) {
	w.t.Helper()
	w.exec("ALTER TABLE orders_orders RENAME TO orders_gone")
	fn()
	w.exec("ALTER TABLE orders_gone RENAME TO orders_orders")
}

func TestOrders_AFailedCommandRunsAgain(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.without(func() {
			got := w.send("POST", "/orders", two, key, "k1")
			got.want(w.t, 500, "command_failed")
			if !got.problem.Retryable || strings.Contains(got.Body, "orders_orders") {
				w.t.Errorf("it is told as %s", got.Body)
			}
			rec := w.record("anonymous", "k1")
			if rec.State != onlyonce.StateFailed || rec.Final || !strings.Contains(rec.Error, "orders_orders") {
				w.t.Errorf("the record is %+v", rec)
			}
		})
		if got := w.place("k1"); got.replayed() || w.record("anonymous", "k1").Attempt != 2 || w.orders() != 1 {
			w.t.Errorf("%v, %d orders", got.Header, w.orders())
		}
	})
}

func TestOrders_AFailureIsKeptIfThatIsThePolicy(t *testing.T) {
	eachEngine(t, func(w *world) {
		var first reply
		w.without(func() {
			first = w.send("POST", "/orders", two, key, "k1")
			first.want(w.t, 500, "command_failed")
			if first.problem.Retryable || strings.Contains(first.Body, "orders_orders") {
				w.t.Errorf("it is told as %s", first.Body)
			}
		})
		same(w.t, first, w.send("POST", "/orders", two, key, "k1"))
		if rec := w.record("anonymous", "k1"); !rec.Final || !strings.Contains(rec.Error, "orders_orders") || w.orders() != 0 {
			w.t.Errorf("the record is %+v; %d orders", rec, w.orders())
		}
		w.place("k2")
	}, func(c *Config) { c.KeepFailures = true })
}

func TestOrders_TheSameKeyForAnotherOperationIsIndependent(t *testing.T) {
	eachEngine(t, func(w *world) {
		guard := onlyonce.New(w.store, onlyonce.Config{})
		other := onlyonce.Request{ID: onlyonce.ID{Tenant: "anonymous", Operation: "CancelOrder", Key: "k1"}, Fingerprint: onlyonce.Fingerprint([]byte("x"))}
		cancel := func() (onlyonce.Answer[string], error) {
			return onlyonce.Do(w.t.Context(), guard, other, func(context.Context) (string, error) { return "cancelled", nil })
		}
		if _, err := cancel(); err != nil {
			w.t.Fatal(err)
		}
		if got := w.place("k1"); got.replayed() {
			w.t.Error("the response is the other's")
		}
		if got, err := cancel(); err != nil || !got.Replayed || got.Value != "cancelled" {
			w.t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestOrders_AnExpiredKeyIsNew(t *testing.T) {
	eachEngine(t, func(w *world) {
		first := w.place("k1")
		eventually(w.t, "the key expires", func() bool {
			got := w.send("POST", "/orders", two, key, "k1")
			return got.Status == 201 && got.order.ID != first.order.ID
		})
	}, func(c *Config) { c.Keep = 300 * time.Millisecond })
}

func TestOrders_50ParallelPostsWithOneKeyMakeOneOrderOneEventAndOneShipment(t *testing.T) {
	eachEngine(t, func(w *world) {
		replies := make([]reply, 50)
		var all sync.WaitGroup
		for i := range replies {
			all.Go(func() { replies[i] = w.send("POST", "/orders", two, key, "k1", "Prefer", "wait=60") })
		}
		all.Wait()
		ran := 0
		for _, r := range replies {
			if r.Status != 201 || r.Body != replies[0].Body {
				w.t.Errorf("%d %s", r.Status, r.Body)
			}
			if !r.replayed() {
				ran++
			}
		}
		if events := w.lag().Waiting; ran != 1 || w.orders() != 1 || events != 1 {
			w.t.Errorf("%d ran, %d orders, %d events", ran, w.orders(), events)
		}
		w.run(w.api)
		w.shipped()
		if n := w.shipments(); n != 1 {
			w.t.Errorf("%d shipments", n)
		}
	})
}
