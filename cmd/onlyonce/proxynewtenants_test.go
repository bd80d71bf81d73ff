package main

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnAddressBringsOnlySoManyInventedTenants(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, `
tenant: {authorization: true, new_per_address: 5}
upstreams: [{url: UP}]
`)
	post := func(i int) answer {
		return s.do("POST", "/things", "x", "Idempotency-Key", "k", "Authorization", fmt.Sprint("Bearer invented-", i))
	}
	for i := range 5 {
		if got := post(i); got.status != 201 {
			t.Errorf("tenant %d gets %d %s", i, got.status, got.body)
		}
	}
	for i := 5; i < 10; i++ {
		if got := post(i); got.status != 429 || got.header.Get("Retry-After") == "" {
			t.Errorf("tenant %d gets %d %s, %v", i, got.status, got.body, got.header)
		}
	}
	if got := post(0); got.status != 201 || got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("a tenant that is known gets %d %s", got.status, got.body)
	}
	if got := s.do("POST", "/things", "x", "Authorization", "Bearer invented-10"); got.status != 201 {
		t.Errorf("a request without a key gets %d", got.status)
	}
	if up.runs() != 6 {
		t.Errorf("%d runs", up.runs())
	}
	s.logs(t, "tenant.new_per_address")
}

func TestNewTenantsAreCountedForWhoTheyComeFrom(t *testing.T) {
	n := newTenantLimit(1, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, slog.New(slog.DiscardHandler))
	for _, c := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1:1", "", "192.0.2.1"},
		{"192.0.2.1:1", "198.51.100.1", "192.0.2.1"},
		{"10.0.0.1:1", "198.51.100.1", "198.51.100.1"},
		{"10.0.0.1:1", "203.0.113.9, 198.51.100.1, 10.2.2.2", "198.51.100.1"},
		{"10.0.0.1:1", "nonsense", "10.0.0.1"},
		{"10.0.0.1:1", "", "10.0.0.1"},
		{"[2001:db8:1:2:3:4:5:6]:1", "", "2001:db8:1:2::"},
		{"[::ffff:192.0.2.1]:1", "", "192.0.2.1"},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		if r.RemoteAddr = c.peer; c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := n.addressOf(r); got.String() != c.want {
			t.Errorf("%s, forwarded for %q: %v, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}

func TestALimitOfNewTenantsForgetsWithTimeAndHasBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTenantLimit(2, nil, slog.New(slog.DiscardHandler))
		a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		for i, want := range []time.Duration{0, 0, 30 * time.Second} {
			if got := n.enter(a, strconv.Itoa(i)); got != want {
				t.Errorf("tenant %d waits %v", i, got)
			}
		}
		if n.enter(b, "other") != 0 || n.enter(a, "other") != 0 {
			t.Error("another address waits, or a tenant that it brought")
		}
		time.Sleep(30 * time.Second)
		if n.enter(a, "2") != 0 || n.enter(a, "3") == 0 {
			t.Error("half a minute is not one more tenant")
		}
		for i := range 3 * rememberAddresses {
			n.enter(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), "t"+strconv.Itoa(i))
		}
		if len(n.addresses) > rememberAddresses || len(n.known)+len(n.earlier) > 2*rememberTenants {
			t.Errorf("%d addresses, %d and %d tenants", len(n.addresses), len(n.known), len(n.earlier))
		}
	})
}
