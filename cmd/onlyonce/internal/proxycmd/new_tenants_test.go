package proxycmd

import (
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestNewTenants_AreCountedForTheAddressTheyComeFrom(t *testing.T) {
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

func TestNewTenants_ALimitOfNewTenantsForgetsWithTimeAndHasBoundedMemory(t *testing.T) {
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

func TestNewTenants_IdleAddressesAreSearchedForOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTenantLimit(2, nil, slog.New(slog.DiscardHandler))
		for i := range rememberAddresses {
			n.of(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})).used = 2
		}
		late := netip.MustParseAddr("192.0.2.1")
		time.Sleep(time.Minute - 1)
		if n.of(late) != &n.others {
			t.Error("there is room although no address is idle")
		}
		time.Sleep(time.Second - 1)
		if n.of(late) != &n.others {
			t.Error("idle addresses were searched for twice in a second")
		}
		time.Sleep(time.Nanosecond)
		if n.of(late) == &n.others || len(n.addresses) != 1 {
			t.Errorf("%d addresses are left, and all but one are idle", len(n.addresses))
		}
	})
}

func TestNewTenants_AddressesThatBroughtFewTenantsLeaveTheirPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTenantLimit(60, nil, slog.New(slog.DiscardHandler))
		for i := range 2 * rememberAddresses { // in 33 seconds
			n.enter(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), "t"+strconv.Itoa(i))
			time.Sleep(time.Millisecond)
		}
		for i := range 60 {
			if wait := n.enter(netip.MustParseAddr("192.0.2.1"), "mine"+strconv.Itoa(i)); wait > 0 {
				t.Fatalf("an address that had brought %d tenants waits %v", i, wait)
			}
		}
	})
}
