// Example is a server with gin whose charges are idempotent:
//
//	go run ./adapters/ginonce/example
//	curl -i localhost:8080/accounts/7/charges -H 'X-Account: 7' -H 'Idempotency-Key: k' -d '{"amount":5}'
//
// It keeps its records in memory. Use a store that survives a restart instead.
package main

import (
	"log"
	"net/http"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/ginonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	log.Fatal(newEngine(guard).Run("127.0.0.1:8080"))
}

// newEngine returns the application.
func newEngine(guard *onlyonce.Guard) *gin.Engine {
	once := ginonce.Middleware(guard, httponce.Config{
		Tenant:   func(r *http.Request) string { return ginonce.Context(r).GetString("account") },
		Required: true,
	})
	r := gin.Default()
	r.Use(authenticate)
	r.POST("/accounts/:id/charges", once, charge)
	return r
}

// authenticate stands for a middleware that verifies credentials.
func authenticate(c *gin.Context) {
	account := c.GetHeader("X-Account")
	if account == "" || account != c.Param("id") {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Set("account", account)
}

var charges atomic.Int64

func charge(c *gin.Context) {
	var order struct {
		Amount int `json:"amount" binding:"required"`
	}
	if err := c.ShouldBindJSON(&order); err != nil {
		c.JSON(http.StatusBadRequest, gin.H{"error": err.Error()})
		return
	}
	c.JSON(http.StatusCreated, gin.H{"charge": charges.Add(1), "amount": order.Amount})
}
