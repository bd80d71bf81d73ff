package orders

import (
	"fmt"
	"testing"
)

// Two environments on one broker are easily given the same name, or the default.
func TestOrigin_TwoDatabasesWithOneBrokerNameTakeNoEventsOfEachOther(t *testing.T) {
	eachBroker(t, func(w *world) {
		other := newWorld(t, func(c *Config) { c.Broker, c.BrokerName = w.api.cfg.Broker, w.api.cfg.BrokerName })
		w.run(w.api)
		other.run(other.api)
		const orders = 20
		for n := range orders {
			w.place(fmt.Sprint("k", n))
			other.place(fmt.Sprint("k", n))
		}
		for _, one := range []*world{w, other} {
			eventually(t, "all events were handled", func() bool { return w.shipments()+other.shipments() >= 2*orders })
			if n := one.count("SELECT count(*) FROM orders_shipments WHERE order_id IN (SELECT id FROM orders_orders)"); n != orders || one.shipments() != n {
				t.Errorf("%d shipments of its own and %d in all, want %d", n, one.shipments(), orders)
			}
		}
		if n := len(w.log.Lines(t, "inbox_foreign")) + len(other.log.Lines(t, "inbox_foreign")); n == 0 {
			t.Error("the log does not tell")
		}
	})
}

func TestOrigin_AllProcessesOfADatabaseGiveItTheSameName(t *testing.T) {
	eachEngine(t, func(w *world) {
		if again := w.open(w.store); again.origin != w.api.origin || again.origin == "" {
			t.Errorf("%q and then %q", w.api.origin, again.origin)
		}
	})
}
