// Example is a server with connect-go whose calls are idempotent:
//
//	go run ./adapters/connectonce/example
//	curl -i localhost:8080/shop.v1.ShopService/Charge -H 'X-Account: 7' -H 'Idempotency-Key: k' -H 'Content-Type: application/json' -d '"5"'
//
// It keeps its records in memory. Use a store that survives a restart instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/connectonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	server := http.Server{Addr: "127.0.0.1:8080", Handler: newMux(guard), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newMux returns the application.
func newMux(guard *onlyonce.Guard) http.Handler {
	path, service := newShopServiceHandler()
	mux := http.NewServeMux()
	mux.Handle(path, connectonce.Wrap(guard, service, httponce.Config{
		Tenant:   func(r *http.Request) string { return r.Header.Get("X-Account") }, // stands for an authenticated caller
		Required: true,
	}))
	return mux
}

// newShopServiceHandler stands for the code that protoc-gen-connect-go generates.
func newShopServiceHandler() (path string, service http.Handler) {
	const procedure = "/shop.v1.ShopService/Charge"
	return "/shop.v1.ShopService/", connect.NewUnaryHandler(procedure, charge)
}

var charges atomic.Int64

func charge(_ context.Context, req *connect.Request[wrapperspb.Int64Value]) (*connect.Response[wrapperspb.StringValue], error) {
	amount := req.Msg.GetValue()
	if amount <= 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("amount must be positive"))
	}
	return connect.NewResponse(wrapperspb.String(fmt.Sprintf("charge %d of %d", charges.Add(1), amount))), nil
}
