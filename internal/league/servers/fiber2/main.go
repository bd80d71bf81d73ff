// Command fiber2 serves payments behind the middleware of fiber v2, with the default configuration of its
// documentation:
// https://github.com/gofiber/fiber/blob/05f9936fec7415c32f42b5b8296fad28c85bcc4f/docs/api/middleware/idempotency.md#default-config
package main

import (
	"log"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"

	"github.com/onlyonce-go/onlyonce/internal/league/servers/payments"
)

func main() {
	ledger, app := payments.NewLedger(), fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idempotency.New())
	for _, operation := range []string{"payments", "refunds"} {
		app.Post("/"+operation, func(c *fiber.Ctx) error {
			p, err := ledger.Pay(operation, c.Body())
			if err != nil {
				return c.Status(http.StatusBadRequest).JSON(fiber.Map{"error": err.Error()})
			}
			c.Set("Location", p.Location())
			c.Set("Set-Cookie", p.Cookie())
			return c.Status(http.StatusCreated).JSON(p)
		})
	}
	app.Get("/payments", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"made": ledger.Made()}) })
	app.Get("/payments/count", func(c *fiber.Ctx) error {
		return c.JSON(fiber.Map{"count": ledger.Count(c.Query("reference"))})
	})
	log.Fatal(app.Listener(payments.Listen()))
}
