package frameworks_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/echo5once"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func echo5Server(guard *onlyonce.Guard, authenticate echo.MiddlewareFunc, charge echo.HandlerFunc) http.Handler {
	once := echo5once.Middleware(guard, httponce.Config{
		Tenant: func(r *http.Request) string { return echo5once.Context(r).Get("account").(string) },
	})
	e := echo.New()
	e.Use(middleware.Recover(), authenticate) // sets "account"
	e.POST("/accounts/:id/charges", charge, once)
	return e
}

// echo5Charge is the handler for echo v5.
func (s *shop) echo5Charge(c *echo.Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	made, err := s.run(body)
	if err != nil {
		return echo.NewHTTPError(http.StatusInternalServerError, err.Error())
	}
	return c.Blob(http.StatusCreated, "application/json", []byte(made))
}

func (s *shop) echo5Server() client {
	return of(echo5Server(s.guard, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("account", "acme")
			return next(c)
		}
	}, s.echo5Charge))
}

func TestEcho5_WithEcho5once(t *testing.T) {
	keepsThePromise(t, (*shop).echo5Server)
	namesTheRoute(t, (*shop).echo5Server, "POST /accounts/:id/charges")
}

func echo5Middleware(guard *onlyonce.Guard, charge echo.HandlerFunc) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}))
	e.POST("/accounts/:id/charges", charge)
	return e
}

func TestEcho5_EchosWrapMiddlewarePanicsAtTheFirstRequest(t *testing.T) {
	s := newShop()
	wantPanic(t, "use echo5once.Middleware instead", func() { of(echo5Middleware(s.guard, s.echo5Charge))(charges, "k", "a") })
	if n := s.runs.Load(); n != 0 {
		t.Errorf("%d runs", n)
	}
}
