// Example is a Lambda function behind API Gateway whose charges are idempotent.
// Outside of Lambda, it serves requests as an HTTP API does:
//
//	go run ./adapters/lambdaonce/example
//	curl -i localhost:8080/accounts/7/charges -H 'X-Account: 7' -H 'Idempotency-Key: k' -d '{"amount":5}'
//
// It keeps its records in memory, which a function loses whenever AWS stops its process. Use a
// store that all processes share instead, such as dynamostore.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce/internal/gateway"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Lease: 10 * time.Second, HoldUnknown: true})
	function := lambdaonce.HTTPHandler(newMux(guard))
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		lambda.Start(function)
	}
	server := http.Server{Addr: "127.0.0.1:8080", Handler: gateway.New(function, gateway.HTTPv2), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newMux returns the application.
func newMux(guard *onlyonce.Guard) http.Handler {
	once := httponce.Wrap(guard, http.HandlerFunc(charge), httponce.Config{Tenant: lambdaonce.Principal, Required: true})
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/charges", authorize(once))
	return mux
}

// authorize rejects a caller that the API's authorizer does not know as the account.
func authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if account, ok := strings.CutPrefix(lambdaonce.Principal(r), "lambda "); !ok || account != r.PathValue("id") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var charges atomic.Int64

func charge(w http.ResponseWriter, r *http.Request) {
	var order struct {
		Amount int `json:"amount"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Amount <= 0 {
		http.Error(w, "amount must be positive", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"charge": charges.Add(1), "amount": order.Amount}) // a client that is gone can't be told
}
