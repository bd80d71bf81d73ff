package orders

import (
	"fmt"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func TestBroker_ABrokerThatIsKilledAgainAndAgainLosesAndDoublesNoShipment(t *testing.T) {
	server := apitest.NewNATS(t)
	server.Start()
	w := newWorld(t, func(c *Config) { c.Broker, c.BrokerName = server.URL(), "kill" })
	w.run(w.api)
	const rounds, each = 5, 12
	for round := range rounds {
		shipped := w.shipments()
		var placing sync.WaitGroup
		placing.Go(func() {
			for n := range each {
				w.place(fmt.Sprint("k", round, "-", n))
			}
		})
		eventually(t, "some are shipped", func() bool { return w.shipments() > shipped })
		server.Kill()
		placing.Wait() // orders are taken meanwhile
		server.Start()
	}
	eventually(t, "every order has its shipment", func() bool { return w.shipments() >= rounds*each })
	eventually(t, "nothing is left to publish", func() bool { return w.lag().Waiting == 0 })
	if n, m := w.shipments(), w.count("SELECT count(DISTINCT order_id) FROM orders_shipments"); n != rounds*each || m != n || w.orders() != n {
		t.Errorf("%d orders, %d shipments of %d", w.orders(), n, m)
	}
}
