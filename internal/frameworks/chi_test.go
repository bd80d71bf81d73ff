package frameworks_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func chiRouter(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	once := func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}
	r := chi.NewRouter()
	r.With(once).Post("/accounts/{id}/charges", charge)
	return r
}

func TestChi_Chi(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(chiRouter(s.guard, s.charge)) })
}

func TestChi_NamesTheOperationAfterThePattern(t *testing.T) {
	namesTheRoute(t, func(s *shop) client { return of(chiRouter(s.guard, s.charge)) }, "POST /accounts/{id}/charges")
}

func chiUse(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	once := func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}
	r := chi.NewRouter()
	r.Use(once)
	r.Post("/accounts/{id}/charges", charge)
	return r
}

func TestChi_ChisUsePanicsAtTheFirstRequest(t *testing.T) {
	s := newShop()
	wantPanic(t, "with chi: r.With(once).Post", func() { of(chiUse(s.guard, s.charge))(charges, "k", "a") })
	if rec := s.record(t, "POST "+charges); rec.State != onlyonce.StateUnknown {
		t.Errorf("the record is %+v", rec)
	}
}
