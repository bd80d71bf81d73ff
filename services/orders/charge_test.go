package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// A provider takes payments, one for each of its idempotency keys.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	charges map[string]string // totals by key
	calls   int
}

func newProvider(t *testing.T) *provider {
	p := &provider{charges: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Total string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.charges[r.Header.Get("Idempotency-Key")] = body.Total
	fmt.Fprintf(w, "pay-%s", r.Header.Get("Idempotency-Key")[:8])
}

func (p *provider) charged() (charges, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges), p.calls
}

// charge is the client of a provider at url.
func charge(url string) func(context.Context, Charge) (string, error) {
	return func(ctx context.Context, c Charge) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"total":%q}`, c.Total)))
		if err != nil {
			return "", err
		}
		r.Header.Set("Idempotency-Key", c.Key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", onlyonce.Unknown(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("the provider responded with %s", resp.Status)
		}
		return "paid", nil
	}
}

func TestCharge_AnOrderIsPaidForOnceAlthoughTheFirstAttemptFailedAfterThePayment(t *testing.T) {
	eachEngine(t, func(w *world) {
		pay := newProvider(w.t)
		w.api = w.open(w.store, func(c *Config) { c.Charge = charge(pay.URL) })
		w.without(func() { w.send("POST", "/orders", two, key, "k1").want(w.t, 500, "command_failed") })
		if charges, calls := pay.charged(); charges != 1 || calls != 1 || w.orders() != 0 {
			w.t.Errorf("%d charges by %d calls, %d orders", charges, calls, w.orders())
		}
		first := w.place("k1")
		same(w.t, first, w.place("k1"))
		if charges, calls := pay.charged(); charges != 1 || calls != 1 || w.orders() != 1 {
			w.t.Errorf("%d charges by %d calls, %d orders", charges, calls, w.orders())
		}
		rec := w.record("anonymous", "k1")
		if rec.Attempt != 2 || string(rec.Steps["charge"]) != `"paid"` || rec.Result.Ref != first.order.ID {
			w.t.Errorf("the record is %+v", rec)
		}
		w.place("k2")
		if charges, _ := pay.charged(); charges != 2 {
			w.t.Errorf("%d charges of two orders", charges)
		}
	})
}

func TestCharge_APaymentThatIsRejectedLeavesNoOrder(t *testing.T) {
	w := newWorld(t)
	rejects := true
	w.api = w.open(w.store, func(c *Config) {
		c.Charge = func(_ context.Context, c Charge) (string, error) {
			if c.Tenant != "anonymous" || c.Total != "39.80" || len(c.Key) != 32 {
				t.Errorf("it is asked for %+v", c)
			}
			if rejects {
				return "", errors.New("card declined")
			}
			return "paid", nil
		}
	})
	got := w.send("POST", "/orders", two, key, "k1")
	got.want(t, 500, "command_failed")
	if strings.Contains(got.Body, "declined") || w.orders() != 0 {
		t.Errorf("%s, %d orders", got.Body, w.orders())
	}
	rejects = false
	w.place("k1")
}

func TestCharge_APaymentOfUnknownOutcomeIsSaidToBeOneAndIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	pay := newProvider(t)
	lost := true
	w.api = w.open(w.store, func(c *Config) {
		c.Charge = func(ctx context.Context, c Charge) (string, error) {
			ref, err := charge(pay.URL)(ctx, c)
			if lost {
				return "", onlyonce.Unknown(errors.New("the response was lost"))
			}
			return ref, err
		}
	})
	got := w.send("POST", "/orders", two, key, "k1")
	got.want(t, 500, "outcome_unknown")
	if !got.problem.Retryable || w.record("anonymous", "k1").State != onlyonce.StateUnknown {
		t.Errorf("%s, %+v", got.Body, w.record("anonymous", "k1"))
	}
	lost = false
	w.place("k1")
	if charges, calls := pay.charged(); charges != 1 || calls != 2 || w.orders() != 1 {
		t.Errorf("%d charges by %d calls, %d orders", charges, calls, w.orders())
	}
}
