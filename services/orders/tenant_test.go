package orders

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/services/internal/caller"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// withTokens gives ada and bob a token each.
func withTokens(t *testing.T, anonymous bool) func(*Config) {
	var text strings.Builder
	for _, tenant := range []string{"ada", "bob"} {
		fmt.Fprintf(&text, "%s %x\n", tenant, sha256.Sum256([]byte(tenant+"-secret")))
	}
	tokens, err := caller.ParseTokens(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Tokens, c.AllowAnonymous = tokens, anonymous }
}

func TestTenant_TheTenantComesFromTheBearerToken(t *testing.T) {
	w := newWorld(t, withTokens(t, false))
	got := w.place("k1", "Authorization", "Bearer ada-secret", "X-Tenant-ID", "bob")
	if w.record("ada", "k1").Result.Ref != got.order.ID {
		t.Error("the order is not ada's")
	}
	for _, header := range [][]string{
		nil,
		{"X-Tenant-ID", "ada"},
		{"Authorization", "Bearer wrong"},
		{"Authorization", "Basic ada-secret"},
		{"Authorization", "Bearer ada-secret", "Authorization", "Bearer ada-secret"},
	} {
		for _, path := range []string{"/orders", got.Header.Get("Location")} {
			rejected := w.send("GET", path, "", header...)
			rejected.want(t, 401, "unauthorized")
			if rejected.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Error(rejected.Header)
			}
		}
		w.send("POST", "/orders", two, append(header, key, "k1")...).want(t, 401, "unauthorized")
	}
}

func TestTenant_ATenantWithoutATokenMayBeNamedWhereAnonymousCallersAreAllowed(t *testing.T) {
	w := newWorld(t, withTokens(t, true))
	w.place("k1", "X-Tenant-ID", "carol@example.org")
	w.place("k1")
	if w.record("carol@example.org", "k1").Result.Ref == w.record("anonymous", "k1").Result.Ref {
		t.Error("two tenants have one order")
	}
	w.send("POST", "/orders", two, key, "k1", "X-Tenant-ID", "ada").want(t, 401, "unauthorized")
	w.send("GET", "/orders", "", "Authorization", "Bearer wrong").want(t, 401, "unauthorized")
	for _, name := range []string{"", "a b", "ä", strings.Repeat("a", 129)} {
		got := w.send("GET", "/orders", "", "X-Tenant-ID", name)
		got.want(t, 400, "validation_error")
		if !strings.HasPrefix(got.problem.Detail, "X-Tenant-ID: ") {
			t.Error(got.Body)
		}
	}
	w.send("GET", "/orders", "", "X-Tenant-ID", "a", "X-Tenant-ID", "b").want(t, 400, "validation_error")
}

func TestSecurity_ATenantNeverSeesAnothersOrdersKeysOrResults(t *testing.T) {
	eachEngine(t, func(w *world) {
		acme := w.place("k1", "X-Tenant-ID", "acme")
		globex := w.place("k1", "X-Tenant-ID", "globex")
		if acme.order.ID == globex.order.ID || globex.replayed() {
			w.t.Error("one tenant got the other's response")
		}
		// Another body under the other's key is no conflict either.
		if got := w.send("POST", "/orders", strings.Replace(two, "PO-7", "PO-8", 1), key, "k1", "X-Tenant-ID", "initech"); got.Status != 201 {
			w.t.Error(got.Body)
		}
		others := w.send("GET", acme.Header.Get("Location"), "", "X-Tenant-ID", "globex")
		others.want(w.t, 404, "order_not_found")
		none := w.send("GET", "/orders/"+orderIDs.Format(publicid.New()), "", "X-Tenant-ID", "globex")
		if none.Body != others.Body {
			w.t.Errorf("another's order: %s, none: %s", others.Body, none.Body)
		}
		list := w.send("GET", "/orders", "", "X-Tenant-ID", "globex")
		if strings.Contains(list.Body, acme.order.ID) || !strings.Contains(list.Body, globex.order.ID) {
			w.t.Error(list.Body)
		}
	})
}

func TestTenant_TenantsThatDifferInCaseOrBlanksAreDifferent(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.place("k1", "X-Tenant-ID", "acme")
		if got := w.send("GET", "/orders", "", "X-Tenant-ID", "ACME"); got.Body != `{"items":[],"next_cursor":null}` {
			w.t.Error(got.Body)
		}
		w.place("K1", "X-Tenant-ID", "acme")
		if n := w.orders(); n != 2 {
			w.t.Errorf("%d orders of two keys", n)
		}
	})
}
