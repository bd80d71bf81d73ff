package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

var ordersTrial = trial{
	path: "/orders",
	body: func(client int) string {
		return fmt.Sprintf(`{"items":[{"product_id":"prod-%d","quantity":2,"unit_price":"19.90"}]}`, client)
	},
	list:  "/orders?limit=100",
	keyed: true,
}

func TestOrdersCrash_ServeIsKilledWithOrdersUnderWay(t *testing.T) {
	needs.Time(t)
	t.Setenv("ONLYONCE_ORDERS_LEASE", "1s") // or every round waits for the events of the relay that was killed
	bin := buildServer(t)
	crashes(t, bin, ordersTrial, 6, func(c *crash) {
		c.check()
		eventually(c.t, "every order has its shipment", func() bool { return c.unshipped() == 0 })
		db := openSQLiteDB(c.t, filepath.Join(c.data, "onlyonce.db"))
		for what, query := range map[string]string{
			"orders":                "SELECT count(*) FROM orders_orders",
			"shipments":             "SELECT count(*) FROM orders_shipments",
			"orders with shipments": "SELECT count(DISTINCT order_id) FROM orders_shipments JOIN orders_orders o ON o.id = order_id",
		} {
			var n int
			if err := db.QueryRow(query).Scan(&n); err != nil {
				c.t.Fatal(err)
			}
			if n != crashClients {
				c.t.Errorf("%d %s of %d keys", n, what, crashClients)
			}
		}
	})
}

// unshipped counts the orders that have no shipment yet, and pages that could not
// be had.
func (c *crash) unshipped() (n int) {
	for cursor := ""; ; {
		r, err := http.NewRequest(http.MethodGet, c.server.Load().url+c.trial.list+cursor, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		status, body, err := c.do(r)
		if err != nil {
			c.t.Fatal(err)
		}
		if status != http.StatusOK {
			return n + 1
		}
		var page struct {
			Items []struct{ Shipment *struct{ ID string } }
			Next  string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			c.t.Fatal(err)
		}
		for _, order := range page.Items {
			if order.Shipment == nil {
				n++
			}
		}
		if page.Next == "" {
			return n
		}
		cursor = "&cursor=" + page.Next
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(answerLimit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", answerLimit, what)
		}
	}
}
