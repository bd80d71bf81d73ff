package frameworks_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	recoverer "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/fiberonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/valyala/fasthttp"
)

func fiberApp(guard *onlyonce.Guard, authenticate, charge fiber.Handler) *fiber.App {
	once := fiberonce.Middleware(guard, httponce.Config{
		Tenant: func(r *http.Request) string { return fiber.Locals[string](fiberonce.Context(r), "account") },
	})
	app := fiber.New()
	app.Use(recoverer.New(), authenticate) // sets "account"
	app.Post("/accounts/:id/charges", once, charge)
	return app
}

// ofFiber returns a client of an app.
func ofFiber(t *testing.T, app *fiber.App) client {
	return ofApp(t, func(r *http.Request) (*http.Response, error) { return app.Test(r, fiber.TestConfig{}) })
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

func TestFiber_WithFiberonce(t *testing.T) {
	wire := func(s *shop) client {
		authenticate := func(c fiber.Ctx) error {
			c.Locals("account", "acme")
			return c.Next()
		}
		return ofFiber(t, fiberApp(s.guard, authenticate, s.fiberCharge))
	}
	keepsThePromise(t, wire)
	namesTheRoute(t, wire, "POST /accounts/:id/charges")
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
