package frameworks_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func fiber2Handler(guard *onlyonce.Guard, charge http.HandlerFunc) *fiber.App {
	once := httponce.Wrap(guard, charge, httponce.Config{
		Tenant:    accountOf,
		Operation: func(*http.Request) string { return "charge" },
	})
	app := fiber.New()
	app.Post("/accounts/:id/charges", adaptor.HTTPHandler(once))
	return app
}

// ofFiber2 returns a client of an app.
func ofFiber2(t *testing.T, app *fiber.App) client {
	return ofApp(t, func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) })
}

func TestFiber2_WithAHandlerOfNetHTTP(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return ofFiber2(t, fiber2Handler(s.guard, s.charge)) })
}

func fiber2Whole(guard *onlyonce.Guard, charge fiber.Handler) http.Handler {
	app := fiber.New()
	app.Post("/accounts/:id/charges", charge)
	return httponce.Wrap(guard, adaptor.FiberApp(app), httponce.Config{Tenant: accountOf})
}

// fiber2Charge is the handler for fiber.
func (s *shop) fiber2Charge(c *fiber.Ctx) error {
	made, err := s.run(c.Body())
	if err != nil {
		return fiber.NewError(http.StatusInternalServerError, err.Error())
	}
	c.Set("Content-Type", "application/json")
	return c.Status(http.StatusCreated).SendString(made)
}

func TestFiber2_WithItsOwnHandlersServedByNetHTTP(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(fiber2Whole(s.guard, s.fiber2Charge)) })
}

func fiber2Middleware(guard *onlyonce.Guard, charge fiber.Handler) *fiber.App {
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
		return httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf})
	}))
	app.Post("/accounts/:id/charges", charge)
	return app
}

func TestFiber2_FibersHTTPMiddlewarePanicsAtTheFirstRequest(t *testing.T) {
	s := newShop()
	app := fiber2Middleware(s.guard, s.fiber2Charge)
	wantPanic(t, "use fiber2once.Middleware instead", func() { app.Handler()(newFiberRequest()) })
	if n := s.runs.Load(); n != 0 {
		t.Errorf("%d runs", n)
	}
}
