// Example is a Caddy whose reverse_proxy sends each charge once. The server behind it, which knows nothing of
// keys, is in the same program:
//
//	cd adapters/caddyonce && go run ./example
//	curl -i localhost:8080/accounts/7/charges -H 'X-Account: 7' -H 'Idempotency-Key: k' -d '{"amount":5}'
//
// It keeps its records in charges.db in the current directory, or in the file that CHARGES names. With
// arguments, it is the command caddy with its standard modules and this one, for a Caddyfile of your own:
//
//	cd adapters/caddyonce && go build -o caddy ./example
//	./caddy run --config /etc/caddy/Caddyfile
package main

import (
	_ "embed"
	"encoding/json"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/onlyonce-go/onlyonce/adapters/caddyonce"
)

//go:embed Caddyfile
var caddyfile []byte

func main() {
	if len(os.Args) > 1 {
		caddycmd.Main()
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.Serve(l, http.HandlerFunc(charge))) }()
	os.Setenv("UPSTREAM", l.Addr().String())
	if os.Getenv("CHARGES") == "" {
		os.Setenv("CHARGES", "charges.db")
	}
	cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(caddyfile, nil)
	if err == nil {
		err = caddy.Load(cfg, false)
	}
	if err != nil {
		log.Fatal(err)
	}
	caddy.TrapSignals()
	select {}
}

var charges atomic.Int64

func charge(w http.ResponseWriter, r *http.Request) {
	var order struct{ Amount int }
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Amount == 0 {
		http.Error(w, "send an amount", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]int64{"charge": charges.Add(1), "amount": int64(order.Amount)}) // a client that has gone retries
}
