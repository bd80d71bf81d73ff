package frameworks_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	recoverer "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/fiber2once"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func fiber2App(guard *onlyonce.Guard, authenticate, charge fiber.Handler) *fiber.App {
	once := fiber2once.Middleware(guard, httponce.Config{
		Tenant: func(r *http.Request) string { return fiber2once.Context(r).Locals("account").(string) },
	})
	app := fiber.New()
	app.Use(recoverer.New(), authenticate) // sets "account"
	app.Post("/accounts/:id/charges", once, charge)
	return app
}

// ofFiber2 returns a client of an app.
func ofFiber2(t *testing.T, app *fiber.App) client {
	return ofApp(t, func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) })
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

func TestFiber2_WithFiber2once(t *testing.T) {
	wire := func(s *shop) client {
		authenticate := func(c *fiber.Ctx) error {
			c.Locals("account", "acme")
			return c.Next()
		}
		return ofFiber2(t, fiber2App(s.guard, authenticate, s.fiber2Charge))
	}
	keepsThePromise(t, wire)
	namesTheRoute(t, wire, "POST /accounts/:id/charges")
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
