package serve

import (
	"log/slog"
	"net/http"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/console"
)

// ordersConsole is where the console of the orders is, if they have a store of their own.
const ordersConsole = "/orders-console/"

// makeConsoles makes a console for each store.
func (a *app) makeConsoles(cfg config, log *slog.Logger) (err error) {
	a.consoles = make(map[string]http.Handler)
	make := func(path string, c console.Config) {
		if err != nil {
			return
		}
		c.Path, c.Redact, c.Log = path, cfg.consoleRedact, log
		a.consoles[path], err = server.NewConsole(cfg.consoleTokens, cfg.acceptRisks, c)
	}
	orders := console.Config{Store: a.orderRecords, Name: a.ordersIn.URL.String(), Meter: a.meters.ordersIn, Outbox: a.ordersIn.Outbox(), Health: a.watches[len(a.watches)-1].Check}
	if a.store == a.ordersIn {
		make(console.DefaultPath, orders)
		return err
	}
	make(ordersConsole, orders)
	make(console.DefaultPath, console.Config{Store: a.records, Name: a.store.URL.String(), Meter: a.meters.store, Health: a.watches[0].Check})
	return err
}
