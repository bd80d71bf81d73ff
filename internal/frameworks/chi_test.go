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
	s := newShop()
	send := of(chiRouter(s.guard, s.charge))
	send(charges, "k", "a")
	if !s.operations()["POST /accounts/{id}/charges"] {
		t.Errorf("the operations are %v", s.operations())
	}
	if got := send("/accounts/8/charges", "k", "a"); got.status != 422 {
		t.Errorf("the same key for another account got %+v", got)
	}
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

func TestChi_ChisUseMakesAnOperationOfEveryPath(t *testing.T) {
	s := newShop()
	keysArePerPath(t, s, of(chiUse(s.guard, s.charge)))
}
