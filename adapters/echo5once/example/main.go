// Example is a server with echo v5 whose charges are idempotent:
//
//	go run ./adapters/echo5once/example
//	curl -i localhost:8080/accounts/7/charges -H 'X-Account: 7' -H 'Idempotency-Key: k' -H 'Content-Type: application/json' -d '{"amount":5}'
//
// It keeps its records in memory. Use a store that survives a restart instead.
package main

import (
	"log"
	"net/http"
	"sync/atomic"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/echo5once"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	log.Fatal(newEcho(guard).Start("127.0.0.1:8080"))
}

// newEcho returns the application.
func newEcho(guard *onlyonce.Guard) *echo.Echo {
	once := echo5once.Middleware(guard, httponce.Config{
		Tenant:   func(r *http.Request) string { return echo5once.Context(r).Get("account").(string) },
		Required: true,
	})
	e := echo.New()
	e.Use(middleware.Recover(), authenticate)
	e.POST("/accounts/:id/charges", charge, once)
	return e
}

// authenticate stands for a middleware that verifies credentials.
func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		account := c.Request().Header.Get("X-Account")
		if account == "" || account != c.Param("id") {
			return echo.ErrUnauthorized
		}
		c.Set("account", account)
		return next(c)
	}
}

var charges atomic.Int64

func charge(c *echo.Context) error {
	var order struct {
		Amount int `json:"amount"`
	}
	if err := c.Bind(&order); err != nil {
		return err
	}
	if order.Amount <= 0 {
		return echo.NewHTTPError(http.StatusBadRequest, "amount must be positive")
	}
	return c.JSON(http.StatusCreated, map[string]any{"charge": charges.Add(1), "amount": order.Amount})
}
