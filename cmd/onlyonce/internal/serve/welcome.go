package serve

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
)

// welcome prints the server's address and commands to try first.
func welcome(w io.Writer, addr net.Addr, stores string, needsToken bool) error {
	key := rand.Text()[:12]
	url := "http://" + server.Reachable(addr)
	auth, hint := "", ""
	if needsToken {
		auth = ` -H "Authorization: Bearer $TOKEN"`
		hint = " (put an owner's token into TOKEN first)"
	}
	try := func(title string) string {
		return fmt.Sprintf(`curl -i '%s/api/v1/items' -H 'Content-Type: application/json' -H 'Idempotency-Key: try-%s'%s -d '{"sku":"LAMP-1","title":"%s","status":"active"}'`,
			url, key, auth, title)
	}
	order := func(quantity int) string {
		return fmt.Sprintf(`curl -i '%s/orders' -H 'Content-Type: application/json' -H 'Idempotency-Key: try-%s'%s -d '{"items":[{"product_id":"prod-1","quantity":%d,"unit_price":"19.90"}],"external_ref":"PO-7"}'`,
			url, key, auth, quantity)
	}
	_, err := fmt.Fprintf(w, `Onlyonce %s listens on %s
Records are kept in %v

Try it in another terminal%s:

First request: the item is created, and the response is stored (201 Created).
  %s

Repeat: the stored response is returned, and nothing is created (Idempotency-Replayed: true).
  %s

Different request with the same key: it is rejected (409 Conflict).
  %s

First order: the order, its event and the response are committed together (201 Created).
  %s

Different order with the same key: it is rejected (422 Unprocessable Entity).
  %s

List of orders: each has the shipment that the consumer created from its event.
  curl -i '%s/orders'%s

SIGINT (Ctrl-C) or SIGTERM ends the server.
`, version.Program(), server.Where(url, addr), stores, hint, try("Lamp"), try("Lamp"), try("Other lamp"), order(2), order(3), url, auth)
	return err
}
