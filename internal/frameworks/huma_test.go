package frameworks_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/chi/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A humaCharge is the input of an operation.
type humaCharge struct {
	ID      string `path:"id"`
	Key     string `header:"Idempotency-Key" doc:"The same in each retry of the charge"`
	RawBody []byte
}

// A humaCharged is its output.
type humaCharged struct {
	Body []byte
}

type humaHandler = func(context.Context, *humaCharge) (*humaCharged, error)

func (s *shop) humaCharge(_ context.Context, in *humaCharge) (*humaCharged, error) {
	made, err := s.run(in.RawBody)
	if err != nil {
		return nil, err
	}
	return &humaCharged{Body: []byte(made)}, nil
}

var humaOperation = huma.Operation{OperationID: "charge", Method: http.MethodPost, Path: "/accounts/{id}/charges", DefaultStatus: http.StatusCreated}

func humaMux(guard *onlyonce.Guard, charge humaHandler) http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Shop", "1.0.0"))
	huma.Register(api, humaOperation, charge)
	return httponce.Wrap(guard, mux, httponce.Config{Tenant: accountOf})
}

func humaChi(guard *onlyonce.Guard, charge humaHandler) http.Handler {
	once := func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}
	r := chi.NewRouter()
	api := humachi.New(r.With(once), huma.DefaultConfig("Shop", "1.0.0"))
	huma.Register(api, humaOperation, charge)
	return r
}

// humaOnce returns a middleware of huma for operations that run once for each key.
func humaOnce(guard *onlyonce.Guard, cfg httponce.Config) func(huma.Context, func(huma.Context)) {
	type call struct {
		operation *huma.Operation
		next      func(huma.Context)
	}
	type callKey struct{}
	once := httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(callKey{}).(call)
		c.next(humago.NewContext(c.operation, r, w)) // with the response that is recorded
	}), cfg)
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		once.ServeHTTP(w, r.WithContext(context.WithValue(ctx.Context(), callKey{}, call{ctx.Operation(), next})))
	}
}

type humaAccount struct{}

// humaAuthenticate is a middleware of huma.
func humaAuthenticate(ctx huma.Context, next func(huma.Context)) {
	next(huma.WithValue(ctx, humaAccount{}, "acme"))
}

func humaAPI(guard *onlyonce.Guard, charge humaHandler) http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Shop", "1.0.0"))
	protected := humaOperation
	protected.Middlewares = huma.Middlewares{humaAuthenticate, humaOnce(guard, httponce.Config{
		Tenant: func(r *http.Request) string { return r.Context().Value(humaAccount{}).(string) },
	})}
	huma.Register(api, protected, charge)
	return mux
}

func TestHuma_EachRightWiringKeepsThePromise(t *testing.T) {
	for name, wire := range map[string]func(*onlyonce.Guard, humaHandler) http.Handler{"the mux": humaMux, "chi": humaChi, "an operation": humaAPI} {
		t.Run(name, func(t *testing.T) {
			keepsThePromise(t, func(s *shop) client { return of(wire(s.guard, s.humaCharge)) })
			namesTheRoute(t, func(s *shop) client { return of(wire(s.guard, s.humaCharge)) }, "POST /accounts/{id}/charges")
		})
	}
}

func humaNext(guard *onlyonce.Guard, charge humaHandler) http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Shop", "1.0.0"))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { next(ctx) })
		httponce.Wrap(guard, handler, httponce.Config{Tenant: accountOf}).ServeHTTP(w, r)
	})
	huma.Register(api, humaOperation, charge)
	return mux
}

func TestHuma_AMiddlewareThatPassesOnItsOwnContextPanics(t *testing.T) {
	s := newShop()
	wired, panics := humaNext(s.guard, s.humaCharge), make(chan any, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { panics <- recover() }()
		wired.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	r := newRequest(charges, "k", "a")
	r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", server.Listener.Addr().String()
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	wantPanic(t, "with huma: humago.NewContext", func() { panic(<-panics) })
	if rec := s.record(t, "POST /accounts/{id}/charges"); rec.State != onlyonce.StateUnknown {
		t.Errorf("the record is %+v", rec)
	}
}

func humaAdapter(guard *onlyonce.Guard, charge humaHandler) http.Handler {
	api := humago.New(http.NewServeMux(), huma.DefaultConfig("Shop", "1.0.0"))
	huma.Register(api, humaOperation, charge)
	return httponce.Wrap(guard, api.Adapter(), httponce.Config{Tenant: accountOf})
}

func TestHuma_TheAdapterInsideWrapPanicsAtTheFirstRequest(t *testing.T) {
	s := newShop()
	wantPanic(t, "the router is inside the middleware", func() { of(humaAdapter(s.guard, s.humaCharge))(charges, "k", "a") })
	if rec := s.record(t, "POST "+charges); rec.State != onlyonce.StateUnknown {
		t.Errorf("the record is %+v", rec)
	}
}
