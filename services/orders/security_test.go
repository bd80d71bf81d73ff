package orders

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

func TestSecurity_WhenTheStoreIsDownNothingRunsAndNothingLeaks(t *testing.T) {
	w := newWorld(t)
	w.api = w.open(&apitest.Broken{Store: w.store, Err: errors.New("secret cause")})
	got := w.send("POST", "/orders", two, key, "k1")
	got.want(t, 503, "store_unavailable")
	if strings.Contains(got.Body, "secret") || got.Header.Get("Retry-After") == "" || w.orders() != 0 {
		t.Errorf("%s %v, %d orders", got.Body, got.Header, w.orders())
	}
	if !strings.Contains(w.log.String(), "secret cause") {
		t.Error("the cause is not logged")
	}
}

func TestSecurity_AReadThatFailsLeaksNothing(t *testing.T) {
	w := newWorld(t)
	first := w.place("k1")
	w.without(func() {
		for _, path := range []string{"/orders", first.Header.Get("Location")} {
			got := w.send("GET", path, "")
			got.want(t, 503, "unavailable")
			if strings.Contains(got.Body, "orders_orders") || got.Header.Get("Retry-After") == "" {
				t.Errorf("%s %v", got.Body, got.Header)
			}
		}
	})
}

func TestSecurity_KeysAreNotLogged(t *testing.T) {
	w := newWorld(t)
	w.place("secret-key")
	w.place("secret-key")
	w.send("POST", "/orders", strings.Replace(two, "PO-7", "PO-8", 1), key, "secret-key").want(t, 422, "idempotency_key_reused")
	if len(w.log.Lines(t, "idempotency_hit")) != 1 || len(w.log.Lines(t, "idempotency_conflict")) != 1 {
		t.Errorf("logged:\n%s", w.log)
	}
	if strings.Contains(w.log.String(), "secret-key") {
		t.Errorf("a key is logged:\n%s", w.log)
	}
}

func TestSecurity_AllThatClientsSayIsBoundNotPasted(t *testing.T) {
	eachEngine(t, func(w *world) {
		for n, text := range []string{`'; DROP TABLE orders_orders; --`, `" OR "1"="1`, `\`, `%`, `🙂`, `?`, `$1`} {
			body := strings.Replace(two, "PO-7", strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text), 1)
			made := w.send("POST", "/orders", body, key, string(rune('a'+n)))
			if got := w.send("GET", made.Header.Get("Location"), ""); got.order.ExternalRef == nil || *got.order.ExternalRef != text {
				w.t.Errorf("%q came back as %s", text, got.Body)
			}
		}
	})
}

func TestSecurity_ACallerWithTooManyRequestsGetsARetryTime(t *testing.T) {
	w := newWorld(t)
	got := send(t, http.HandlerFunc(func(rec http.ResponseWriter, r *http.Request) {
		w.api.reject(rec, r, serving.ErrTooManyRequests)
	}), "GET", "/orders", "")
	got.want(t, 429, "too_many_requests")
	if got.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", got.Header.Get("Retry-After"))
	}
}

func TestSecurity_APageOfLongOrdersIsShort(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat(`{"product_id":"`+strings.Repeat("<", maxProduct)+`","quantity":1},`, maxItems)
	body := `{"items":[` + strings.TrimSuffix(long, ",") + `]}`
	for n := range 20 {
		if got := w.send("POST", "/orders", body, key, fmt.Sprint("k", n)); got.Status != 201 {
			t.Fatal(got.Body)
		}
	}
	if got := w.send("GET", "/orders?limit=200", ""); got.Status != 200 || len(got.Body) > 512<<10 {
		t.Errorf("a page of status %d has %d bytes", got.Status, len(got.Body))
	}
	if pages := w.pages("limit=200"); len(slices.Concat(pages...)) != 20 || len(pages) == 1 {
		t.Errorf("%d orders are on %d pages", len(slices.Concat(pages...)), len(pages))
	}
}

func TestSecurity_ATenantThatHasStoredTooMuchGetsARetryTime(t *testing.T) {
	for name, charge := range map[string]func(context.Context, Charge) (string, error){
		"in one transaction": nil,
		"with a charge":      func(context.Context, Charge) (string, error) { return "paid", nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Charge = charge })
			w.api.limiter = httponce.NewLimiter(w.api.guard.Guard, httponce.Config{MaxTenantStored: 1})
			w.place("k1")
			got := w.send("POST", "/orders", two, key, "k2")
			got.want(t, 429, "too_many_requests")
			if got.Header.Get("Retry-After") == "" {
				t.Error("there is no Retry-After")
			}
			w.place("k2", "X-Tenant-ID", "other")
			if n := w.orders(); n != 2 {
				t.Errorf("%d orders", n)
			}
		})
	}
}
