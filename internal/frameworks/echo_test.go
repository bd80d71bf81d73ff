package frameworks_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func echoWrapHandler(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	once := httponce.Wrap(guard, charge, httponce.Config{
		Tenant:    accountOf,
		Operation: func(*http.Request) string { return "charge" },
	})
	e := echo.New()
	e.POST("/accounts/:id/charges", echo.WrapHandler(once))
	return e
}

func TestEcho_WithAHandlerOfNetHTTP(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(echoWrapHandler(s.guard, s.charge)) })
}

func echoWhole(guard *onlyonce.Guard, charge echo.HandlerFunc) http.Handler {
	e := echo.New()
	e.POST("/accounts/:id/charges", charge)
	return httponce.Wrap(guard, e, httponce.Config{Tenant: accountOf})
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

func TestEcho_WithItsOwnHandlersAndTheirErrors(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(echoWhole(s.guard, s.echoCharge)) })
}

func echoMiddleware(guard *onlyonce.Guard, charge echo.HandlerFunc) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}))
	e.POST("/accounts/:id/charges", charge)
	return e
}

func TestEcho_AnErrorThatEchoHandlesAfterTheMiddlewareIsLostButObserved(t *testing.T) {
	s := newShop()
	send := of(echoMiddleware(s.guard, s.echoCharge))
	failed, again := send(charges, "k", "fail once"), send(charges, "k", "fail once")
	if failed != (reply{200, "", false}) || again != (reply{200, "", true}) {
		t.Errorf("the failure got %+v, then %+v", failed, again)
	}
	if n := s.told(onlyonce.OutcomeUnrecorded); n != 1 {
		t.Errorf("the Observer was told %d times", n)
	}
}
