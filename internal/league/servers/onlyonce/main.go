// Command onlyonce serves payments behind httponce.Wrap, as docs/first-service.md shows it for a
// handler that calls other services.
package main

import (
	"context"
	"database/sql"
	"log"
	"net/http"

	_ "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/league/servers/payments"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:records.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := sqlstore.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	store, err := sqlstore.Open(ctx, db, sqlstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	guard := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
	cfg := httponce.Config{Tenant: payments.Account, Required: true}

	ledger, mux := payments.NewLedger(), http.NewServeMux()
	mux.Handle("POST /payments", httponce.Wrap(guard, ledger.Post("payments"), cfg))
	mux.Handle("POST /refunds", httponce.Wrap(guard, ledger.Post("refunds"), cfg))
	ledger.Get(mux)
	payments.Serve(mux)
}
