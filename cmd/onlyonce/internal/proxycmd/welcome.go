package proxycmd

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
)

// welcome prints the proxy's address and commands to try first.
func welcome(w io.Writer, addr net.Addr, f *proxyfile.File, store *recordStore) error {
	url, options := "http://"+server.Reachable(addr), ""
	if f.TLS.Cert != "" {
		url, options = "https://"+server.Reachable(addr), " -k" // the URL has an address, for which few certificates are valid
		if f.TLS.ClientCA != "" {
			options += " --cert client.crt --key client.key"
		}
	}
	hint := ""
	switch t := &f.Tenant; {
	case t.Header != "":
		options += fmt.Sprintf(" -H '%s: me'", t.Header)
	case t.JWT.Claim != "":
		options += ` -H "Authorization: Bearer $TOKEN"`
		hint = " (put a token into TOKEN first)"
	case t.Authorization:
		options += ` -H 'Authorization: Bearer me'`
	}
	key := rand.Text()[:12]
	try := func(body string) string {
		return fmt.Sprintf(`curl -i%s '%s/' -H 'Content-Type: application/json' -H '%s: try-%s' -d '%s'`, options, url, f.Defaults.Key.Header, key, body)
	}
	forgets := ""
	if store.forgets {
		forgets = ", which loses everything when the proxy ends"
	}
	names := make([]string, len(f.Upstreams))
	for i, u := range f.Upstreams {
		names[i] = u.URL
	}
	_, err := fmt.Fprintf(w, `Onlyonce %s listens on %s
and forwards requests to %s
Records are kept in %s%s

Try it in another terminal%s; replace / with a path of your API:

First request: the upstream responds, and the response is stored.
  %s

Repeat: the stored response is returned, and the upstream is not called (Idempotency-Replayed: true).
  %s

Different request with the same key: it is rejected (422 Unprocessable Entity).
  %s

SIGHUP reloads the settings; SIGINT (Ctrl-C) or SIGTERM ends the proxy.
`, version.Program(), server.Where(url, addr), strings.Join(names, ", "), store.shown, forgets, hint, try(`{"n":1}`), try(`{"n":1}`), try(`{"n":2}`))
	return err
}
