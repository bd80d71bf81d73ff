// Command fiber serves payments behind the middleware of fiber v3, with the default configuration of its
// documentation:
// https://github.com/gofiber/fiber/blob/2740b7ba7debb07e2adbcf02ae2a6f1aeca37c44/docs/middleware/idempotency.md#default-config-skip-safe-methods
package main

import (
	"log"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/onlyonce-go/onlyonce/internal/league/servers/payments"
)

func main() {
	ledger, app := payments.NewLedger(), fiber.New()
	app.Use(idempotency.New())
	for _, operation := range []string{"payments", "refunds"} {
		app.Post("/"+operation, func(c fiber.Ctx) error {
			p, err := ledger.Pay(operation, c.Body())
			if err != nil {
				return c.Status(http.StatusBadRequest).JSON(fiber.Map{"error": err.Error()})
			}
			c.Set("Location", p.Location())
			c.Set("Set-Cookie", p.Cookie())
			return c.Status(http.StatusCreated).JSON(p)
		})
	}
	app.Get("/payments", func(c fiber.Ctx) error { return c.JSON(fiber.Map{"made": ledger.Made()}) })
	app.Get("/payments/count", func(c fiber.Ctx) error {
		return c.JSON(fiber.Map{"count": ledger.Count(c.Query("reference"))})
	})
	log.Fatal(app.Listener(payments.Listen(), fiber.ListenConfig{DisableStartupMessage: true}))
}
