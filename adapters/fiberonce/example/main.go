// Example is a server with fiber v3 whose charges are idempotent:
//
//	go run ./adapters/fiberonce/example
//	curl -i localhost:8080/accounts/7/charges -H 'X-Account: 7' -H 'Idempotency-Key: k' -H 'Content-Type: application/json' -d '{"amount":5}'
//
// It keeps its records in memory. Use a store that survives a restart instead.
package main

import (
	"log"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/fiberonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	log.Fatal(newApp(guard).Listen("127.0.0.1:8080"))
}

// newApp returns the application.
func newApp(guard *onlyonce.Guard) *fiber.App {
	once := fiberonce.Middleware(guard, httponce.Config{
		Tenant:   func(r *http.Request) string { return fiber.Locals[string](fiberonce.Context(r), "account") },
		Required: true,
	})
	app := fiber.New()
	app.Use(recover.New(), authenticate)
	app.Post("/accounts/:id/charges", once, charge)
	return app
}

// authenticate stands for a middleware that verifies credentials.
func authenticate(c fiber.Ctx) error {
	account := c.Get("X-Account")
	if account == "" || !strings.HasPrefix(c.Path(), "/accounts/"+account+"/") {
		return fiber.ErrUnauthorized
	}
	c.Locals("account", account)
	return c.Next()
}

var charges atomic.Int64

func charge(c fiber.Ctx) error {
	var order struct {
		Amount int `json:"amount"`
	}
	if err := c.Bind().JSON(&order); err != nil {
		return fiber.NewError(fiber.StatusBadRequest, err.Error())
	}
	if order.Amount <= 0 {
		return fiber.NewError(fiber.StatusBadRequest, "amount must be positive")
	}
	return c.Status(fiber.StatusCreated).JSON(fiber.Map{"charge": charges.Add(1), "amount": order.Amount})
}
