package frameworks_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/echoonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func echoServer(guard *onlyonce.Guard, authenticate echo.MiddlewareFunc, charge echo.HandlerFunc) http.Handler {
	once := echoonce.Middleware(guard, httponce.Config{
		Tenant: func(r *http.Request) string { return echoonce.Context(r).Get("account").(string) },
	})
	e := echo.New()
	e.Use(middleware.Recover(), authenticate) // sets "account"
	e.POST("/accounts/:id/charges", charge, once)
	return e
}

// echoCharge is the handler for echo.
func (s *shop) echoCharge(c echo.Context) error {
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

func (s *shop) echoServer() client {
	return of(echoServer(s.guard, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("account", "acme")
			return next(c)
		}
	}, s.echoCharge))
}

func TestEcho_WithEchoonce(t *testing.T) {
	keepsThePromise(t, (*shop).echoServer)
	namesTheRoute(t, (*shop).echoServer, "POST /accounts/:id/charges")
}

func echoMiddleware(guard *onlyonce.Guard, charge echo.HandlerFunc) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}))
	e.POST("/accounts/:id/charges", charge)
	return e
}

func TestEcho_EchosWrapMiddlewarePanicsAtTheFirstRequest(t *testing.T) {
	s := newShop()
	wantPanic(t, "use echoonce.Middleware instead", func() { of(echoMiddleware(s.guard, s.echoCharge))(charges, "k", "a") })
	if n := s.runs.Load(); n != 0 {
		t.Errorf("%d runs", n)
	}
}
