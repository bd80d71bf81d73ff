package proxycmd

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
)

func TestTenant_ATenantHeaderIsTakenFromConfiguredAddressesThisMachineOrClientsWithACertificate(t *testing.T) {
	shown := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	for _, c := range []struct {
		from         string
		certificates bool
		address      string
		tls          *tls.ConnectionState
		want         string
	}{
		{address: "127.0.0.1:1", want: "alice"},
		{address: "[::1]:1", want: "alice"},
		{address: "[::ffff:127.0.0.1]:1", want: "alice"},
		{address: "192.0.2.1:1"},
		{address: "192.0.2.1:1", tls: shown},
		{address: "@"},
		{certificates: true, address: "192.0.2.1:1", tls: shown, want: "alice"},
		{certificates: true, address: "127.0.0.1:1", tls: &tls.ConnectionState{}},
		{certificates: true, address: "127.0.0.1:1"},
		{certificates: true, from: "192.0.2.0/24", address: "192.0.2.1:1", want: "alice"},
		{certificates: true, from: "192.0.2.0/24", address: "198.51.100.1:1", tls: shown},
		{from: "192.0.2.7,2001:db8::/32", address: "192.0.2.7:1", want: "alice"},
		{from: "::ffff:192.0.2.0/120", address: "192.0.2.7:1", want: "alice"},
		{from: "::ffff:192.0.2.7", address: "[::ffff:192.0.2.7]:1", want: "alice"},
		{from: "::ffff:192.0.2.0/120", address: "192.0.3.7:1"},
		{from: "192.0.2.7,2001:db8::/32", address: "192.0.2.8:1"},
		{from: "192.0.2.7,2001:db8::/32", address: "[2001:db8::1%eth0]:1", want: "alice"},
		{from: "192.0.2.7", address: "127.0.0.1:1"},
	} {
		var from proxyfile.Prefixes
		if c.from != "" {
			if err := from.Set(c.from); err != nil {
				t.Fatal(err)
			}
		}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr, r.TLS = c.address, c.tls
		r.Header.Set("X-Tenant-ID", "alice")
		if got := headerTenant("x-tenant-id", trustedPeers(from, c.certificates))(r); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
