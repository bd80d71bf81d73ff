package frameworks_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/valyala/fasthttp"
)

func fiberHandler(guard *onlyonce.Guard, charge http.HandlerFunc) *fiber.App {
	once := httponce.Wrap(guard, charge, httponce.Config{
		Tenant:    accountOf,
		Operation: func(*http.Request) string { return "charge" },
	})
	app := fiber.New()
	app.Post("/accounts/:id/charges", adaptor.HTTPHandler(once))
	return app
}

// ofFiber returns a client of an app.
func ofFiber(t *testing.T, app *fiber.App) client {
	return ofApp(t, func(r *http.Request) (*http.Response, error) { return app.Test(r, fiber.TestConfig{}) })
}

func TestFiber_WithAHandlerOfNetHTTP(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return ofFiber(t, fiberHandler(s.guard, s.charge)) })
}

func fiberWhole(guard *onlyonce.Guard, charge fiber.Handler) http.Handler {
	app := fiber.New()
	app.Post("/accounts/:id/charges", charge)
	return httponce.Wrap(guard, adaptor.FiberApp(app), httponce.Config{Tenant: accountOf})
}

// fiberCharge is the handler for fiber.
func (s *shop) fiberCharge(c fiber.Ctx) error {
	made, err := s.run(c.Body())
	if err != nil {
		return fiber.NewError(http.StatusInternalServerError, err.Error())
	}
	c.Set("Content-Type", "application/json")
	return c.Status(http.StatusCreated).SendString(made)
}

func TestFiber_WithItsOwnHandlersServedByNetHTTP(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(fiberWhole(s.guard, s.fiberCharge)) })
}

func fiberMiddleware(guard *onlyonce.Guard, charge fiber.Handler) *fiber.App {
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}))
	app.Post("/accounts/:id/charges", charge)
	return app
}

func TestFiber_FibersHTTPMiddlewarePanicsAtTheFirstRequest(t *testing.T) {
	s := newShop()
	app := fiberMiddleware(s.guard, s.fiberCharge)
	wantPanic(t, "use fiberonce.Middleware instead", func() { app.Handler()(newFiberRequest()) })
	if n := s.runs.Load(); n != 0 {
		t.Errorf("%d runs", n)
	}
}

// newFiberRequest returns a keyed POST for an app's handler.
func newFiberRequest() *fasthttp.RequestCtx {
	var r fasthttp.RequestCtx
	r.Request.Header.SetMethod("POST")
	r.Request.SetRequestURI(charges)
	r.Request.Header.Set("Idempotency-Key", "k")
	r.Request.SetBodyString("a")
	return &r
}
