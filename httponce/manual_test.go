package httponce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestReadKey_AHandlerOfItsOwnReadsAKeyAsTheLayerDoes(t *testing.T) {
	for _, c := range []struct {
		header []string
		key    string
		code   string
	}{
		{[]string{"k-1"}, "k-1", ""},
		{[]string{`"k-1"`}, "k-1", ""},
		{[]string{strings.Repeat("k", 255)}, strings.Repeat("k", 255), ""},
		{[]string{strings.Repeat("k", 256)}, "", "idempotency_key_invalid"},
		{[]string{"k", "k"}, "", "idempotency_key_invalid"},
		{[]string{""}, "", "idempotency_key_invalid"},
		{[]string{"k.1"}, "", "idempotency_key_invalid"},
		{nil, "", "idempotency_key_missing"},
	} {
		r := httptest.NewRequest("POST", "/orders", nil)
		if c.header != nil {
			r.Header["Idempotency-Key"] = c.header
		}
		key, err := httponce.ReadKey(r)
		if parsed, again := httponce.ParseKey(c.header); parsed != key || !reflect.DeepEqual(again, err) {
			t.Errorf("%q: ParseKey returns %q, %v, and ReadKey %q, %v", c.header, parsed, again, key, err)
		}
		rejection := problemIn(err)
		if code := rejection.Code; key != c.key || code != c.code {
			t.Errorf("%q: key %q, code %q, want %q and %q", c.header, key, code, c.key, c.code)
		}
		if err != nil && (rejection.Status != 400 || rejection.Detail == "") {
			t.Errorf("%q is rejected with %+v", c.header, rejection)
		}
	}
}

// problemIn returns the problem that err is, if it is one.
func problemIn(err error) (p httponce.Problem) {
	errors.As(err, &p)
	return p
}

func TestReadKey_WhatAnErrorMeansToAClient(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("onlyonce: %w", err) }
	for _, c := range []struct {
		err       error
		status    int
		code      string
		retryable bool
		after     time.Duration
	}{
		{wrapped(onlyonce.ErrMismatch), 422, "idempotency_key_reused", false, 0},
		{wrapped(onlyonce.ErrKeyExpired), 410, "idempotency_key_expired", false, 0},
		{&onlyonce.InFlightError{RetryAfter: 2 * time.Second}, 409, "request_in_progress", true, 2 * time.Second},
		{wrapped(onlyonce.ErrLost), 409, "request_in_progress", true, time.Second},
		{wrapped(onlyonce.ErrUnknown), 409, "outcome_unknown", false, 0},
		{wrapped(onlyonce.ErrInDoubt), 503, "outcome_unknown", true, time.Second},
		{wrapped(onlyonce.ErrCorrupt), 409, "outcome_unknown", false, 0},
		{wrapped(onlyonce.ErrFailed), 500, "command_failed", false, 0},
		{wrapped(onlyonce.ErrUnavailable), 503, "store_unavailable", true, 5 * time.Second},
		{errors.New("no stock"), 500, "command_failed", true, 0},
		{onlyonce.Final(errors.New("no stock")), 500, "command_failed", false, 0},
		{onlyonce.Unknown(errors.New("no stock")), 500, "outcome_unknown", false, 0},
		{onlyonce.Unknown(wrapped(onlyonce.ErrUnavailable)), 500, "outcome_unknown", false, 0},
		{errors.Join(wrapped(onlyonce.ErrLost), onlyonce.Unknown(errors.New("no stock"))), 409, "request_in_progress", true, time.Second},
	} {
		p := httponce.ProblemOf(c.err)
		if p.Status != c.status || p.Code != c.code || p.Retryable != c.retryable || p.RetryAfter != c.after || !errors.Is(p.Err, c.err) {
			t.Errorf("%v is %+v", c.err, p)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, nil)
		wantProblem(t, w, c.status, c.code)
		if strings.Contains(w.Body.String(), "stock") || !strings.Contains(w.Body.String(), "about:blank") {
			t.Errorf("%v is told as %s", c.err, w.Body)
		}
		if said := w.Header().Get("Retry-After"); said != "" != (c.after > 0) {
			t.Errorf("%v: Retry-After %q", c.err, said)
		}
	}
}

func TestReadKey_AProblemIsAnErrorThatKeepsItsText(t *testing.T) {
	cause := errors.New("secret")
	err := fmt.Errorf("create: %w", httponce.Problem{Code: "no_stock", Status: 409, Detail: "None is left.", Err: cause})
	p := httponce.ProblemOf(err)
	if p.Code != "no_stock" || p.Status != 409 || !errors.Is(err, cause) || !strings.Contains(err.Error(), "None is left.") {
		t.Errorf("%v is %+v", err, p)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, nil)
	if strings.Contains(w.Body.String(), "secret") {
		t.Errorf("the client is told %s", w.Body)
	}
}

func createOrder(context.Context) (string, error) {
	fmt.Println("the order is made")
	return "order 1", nil
}

func ExampleReadKey() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		key, err := httponce.ReadKey(r)
		if err != nil {
			httponce.ProblemOf(err).ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			http.Error(w, "the body can't be read", http.StatusBadRequest)
			return
		}
		answer, err := onlyonce.Do(r.Context(), guard, onlyonce.Request{
			ID:          onlyonce.ID{Tenant: "acme", Operation: "CreateOrder", Key: key},
			Fingerprint: onlyonce.Fingerprint(body),
			Wait:        httponce.PreferredWait(r, 5*time.Second),
		}, createOrder)
		if err != nil {
			httponce.ProblemOf(err).ServeHTTP(w, r)
			return
		}
		fmt.Fprint(w, answer.Value)
	}
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("Idempotency-Key", "k-1")
		w := httptest.NewRecorder()
		handler(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// the order is made
	// 200 order 1
	// 200 order 1
}

func TestLimiter_AHandlerOfItsOwnHasTheLimitsOfTheLayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type step struct {
			tenant, key string
			status      int // 0: it is admitted
		}
		for name, test := range map[string]struct {
			cfg   httponce.Config
			limit string
			steps []step
		}{
			"new keys":        {httponce.Config{MaxNewKeys: 2}, httponce.LimitNewKeys, []step{{"a", "1", 0}, {"a", "1", 0}, {"a", "2", 0}, {"a", "2", 429}, {"a", "3", 429}, {"b", "1", 0}}},
			"a tenant's data": {httponce.Config{MaxTenantStored: 1100}, httponce.LimitTenantStored, []step{{"a", "1", 0}, {"a", "1", 0}, {"a", "2", 0}, {"a", "3", 0}, {"a", "3", 429}, {"b", "1", 0}}},
			"all data":        {httponce.Config{MaxStored: 600, MaxTenantStored: 600}, httponce.LimitStored, []step{{"a", "1", 0}, {"b", "1", 0}, {"c", "1", 503}, {"a", "1", 503}}},
		} {
			guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
			limiter := httponce.NewLimiter(guard, test.cfg)
			for i, s := range test.steps {
				admission, err := limiter.Admit(t.Context(), s.tenant)
				if p := problemIn(err); p.Status != s.status || p.Status != 0 && (p.RetryAfter <= 0 || p.Limit != test.limit) {
					t.Errorf("%s, step %d: %+v", name, i, p)
				}
				if err != nil {
					continue
				}
				req := onlyonce.Request{ID: onlyonce.ID{Tenant: s.tenant, Key: s.key}, Fingerprint: []byte("f")}
				if _, err := onlyonce.Do(t.Context(), guard, req, func(ctx context.Context) (int, error) {
					admission.Runs(onlyonce.Current(ctx))
					return 1, nil
				}); err != nil {
					t.Fatal(err)
				}
				admission.Release()
				admission.Release()
			}
		}
	})
}

func TestLimiter_RequestsInFlightAreCountedUntilTheyAreReleased(t *testing.T) {
	limiter := httponce.NewLimiter(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), httponce.Config{MaxInFlight: 1})
	for range 2 {
		first, err := limiter.Admit(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := limiter.Admit(t.Context(), "a"); problemIn(err).Code != httponce.CodeTooManyRequests {
			t.Errorf("a second request at the same time: %v", err)
		}
		if other, err := limiter.Admit(t.Context(), "b"); err != nil {
			t.Errorf("another tenant: %v", err)
		} else {
			other.Release()
		}
		first.Release()
	}
}

func TestLimiter_NonsenseIsRejectedAtOnce(t *testing.T) {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	for name, make := range map[string]func(){
		"no Guard":         func() { httponce.NewLimiter(nil, httponce.Config{}) },
		"a negative limit": func() { httponce.NewLimiter(guard, httponce.Config{MaxNewKeys: -1}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted", name)
				}
			}()
			make()
		}()
	}
}
