package httponce_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// postUntil is post for a handler whose context ends in a minute.
func postUntil(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := keyed(http.MethodPost, "/orders", key, body)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(httponce.WithDeadline(r.Context(), time.Now().Add(time.Minute))))
	return w
}

// late returns a handler that responds with the status when its context ends.
func late(t *testing.T, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		<-r.Context().Done()
		if cause := context.Cause(r.Context()); !errors.Is(cause, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("the context ended after %v with %v", time.Since(began), cause)
		}
		w.WriteHeader(status)
		io.WriteString(w, "late")
	}
}

func TestWithDeadline_ALateFailureLeavesTheOutcomeUnknown(t *testing.T) {
	for status, state := range map[int]onlyonce.State{201: onlyonce.StateCompleted, 404: onlyonce.StateCompleted, 503: onlyonce.StateUnknown} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			guard := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
			wantResponse(t, postUntil(httponce.Wrap(guard, late(t, status), single), "k", "x"), status, "late")
			if rec := lookup(t, store, "k"); rec.State != state {
				t.Errorf("after a status of %d, the record is %+v", status, rec)
			}
		})
	}
}

func TestWithDeadline_ALateFailureInATransactionIsRolledBack(t *testing.T) {
	for name, err := range map[string]error{"a status": nil, "an error": errBroken} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop()
				guard := onlyonce.NewTx(s, onlyonce.Config{Observer: onlyonce.DiscardEvents, Lease: time.Hour})
				h := httponce.WrapTx(guard, func(w http.ResponseWriter, r *http.Request, tx order) error {
					tx["order"] = "x"
					late(t, 503)(w, r)
					return err
				}, single)
				wantResponse(t, postUntil(h, "k", "x"), 503, "late")
				if rec := lookup(t, s.Store, "k"); rec.State != onlyonce.StateFailed || s.Row("order") != "" {
					t.Errorf("the record is %+v, the row %q", rec, s.Row("order"))
				}
			})
		})
	}
}

func TestWithDeadline_AHandlerThatReturnsInTimeIsNotAffected(t *testing.T) {
	runs := 0
	h := httponce.Wrap(newGuard(onlyonce.Config{}), responding(201, &runs), single)
	wantResponse(t, postUntil(h, "k", "x"), 201, "run 1")
	wantResponse(t, postUntil(h, "k", "x"), 201, "run 1")
}

func TestWrap_AHandlerThatNeedsNoContextCostsNone(t *testing.T) {
	const requests = 100
	allocations := func(handler http.HandlerFunc) float64 { return allocationsOf(requests, handler, nil) }
	without := allocations(func(http.ResponseWriter, *http.Request) {})
	with := allocations(func(_ http.ResponseWriter, r *http.Request) { r.Context().Done() })
	if without > with-2*requests { // a context takes two and its channel one; pools make the number vary a little
		t.Errorf("%v allocations for %d requests whose handler needs no context, %v if it needs one", without, requests, with)
	}
}

func TestWrap_StatusOfCostsNoCopyOfTheHeader(t *testing.T) {
	const requests = 100
	respond := func(w http.ResponseWriter, _ *http.Request) { w.Header()["Etag"] = etag }
	without := allocationsOf(requests, respond, nil)
	with := allocationsOf(requests, respond, func(response onlyonce.Result) int { return response.Status })
	if with > without+requests/2 { // pools make the number vary a little
		t.Errorf("%v allocations for %d requests with StatusOf, %v without", with, requests, without)
	}
}

var etag = []string{"v1"}

// allocationsOf returns how many allocations new commands make.
func allocationsOf(requests int, handler http.HandlerFunc, statusOf func(onlyonce.Result) int) float64 {
	h := httponce.Wrap(newGuard(onlyonce.Config{}), handler, httponce.Config{Tenant: httponce.SingleTenant, MaxNewKeys: math.MaxInt, StatusOf: statusOf})
	s, key := newSender(10), 0
	return testing.AllocsPerRun(10, func() {
		for range requests {
			key++
			s.key[0] = strconv.Itoa(key)
			s.send(h)
		}
	})
}
