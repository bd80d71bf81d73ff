package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
)

// welcome prints where the server listens and what to try first.
func welcome(w io.Writer, addr net.Addr, store storeURL, needsToken bool) error {
	key := rand.Text()[:12]
	url := "http://" + reachable(addr)
	auth, hint := "", ""
	if needsToken {
		auth = ` -H "Authorization: Bearer $TOKEN"`
		hint = " (put an owner's token into TOKEN first)"
	}
	try := func(title string) string {
		return fmt.Sprintf(`curl -i '%s/api/v1/items' -H 'Content-Type: application/json' -H 'Idempotency-Key: try-%s'%s -d '{"sku":"LAMP-1","title":"%s","status":"active"}'`,
			url, key, auth, title)
	}
	_, err := fmt.Fprintf(w, `Onlyonce %s listens on %s
and keeps its records in %v

Try it in another terminal%s:

Create: the item is made and its answer stored (201 Created).
  %s

Repeat: the same bytes are answered again, and nothing is made (Idempotency-Replayed: true).
  %s

Conflict: the same key with another body is refused (409 Conflict).
  %s

SIGINT (Ctrl-C) or SIGTERM ends the server.
`, programVersion(), url, store, hint, try("Lamp"), try("Lamp"), try("Other lamp"))
	return err
}

// reachable is an address at which a server that listens on addr can be reached
// from its own machine.
func reachable(addr net.Addr) string {
	at := addr.(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		at = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.Port}
	}
	return at.String()
}
