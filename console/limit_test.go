package console

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestSecurity_LoginsAreLimitedForAnAddressAndForAllOfThem(t *testing.T) {
	now := time.Now()
	var l logins
	address := func(remote string) client { return client{network: networkOf(remote)} }
	ada, bob := address("192.0.2.1:1000"), address("192.0.2.2:1000")
	count := func(from client, at time.Time) (n int) {
		for n = 0; n < 10*allBurst && l.allow(from, at); n++ {
			continue
		}
		return n
	}
	if n := count(ada, now); n != loginBurst {
		t.Errorf("an address may fail %d times", n)
	}
	if n := count(ada, now.Add(loginEvery)); n != 1 {
		t.Errorf("after a while, it may fail %d times", n)
	}
	if l.allow(bob, now); l.clients[bob] == (bucket{}) {
		t.Error("another address may not log in")
	}
	l.succeed(bob)
	if n := count(bob, now); n != loginBurst {
		t.Errorf("after a valid token, an address may fail %d times", n)
	}
	l.succeed(bob)
	if n := count(bob, now); n != 1 {
		t.Errorf("a valid token forgave %d attempts", n)
	}
	l = logins{}
	allowed := 0
	for n := range 10 * maxClients {
		if l.allow(address(fmt.Sprintf("[2001:db8:%x:%x::1]:1", n>>16, n&0xffff)), now) {
			allowed++
		}
	}
	if allowed != allBurst || len(l.clients) > maxClients {
		t.Errorf("all addresses may fail %d times, and %d are remembered", allowed, len(l.clients))
	}
	if count(client{token: [32]byte{1}}, now) != loginBurst || count(client{token: [32]byte{2}}, now) != loginBurst {
		t.Error("the attempts of addresses count for browsers that are known, or those of one token for another")
	}
	if address("[2001:db8::1]:1") != address("[2001:db8::2]:1") || address("[::ffff:192.0.2.1]:1") != ada || ada == bob || networkOf("@") != (netip.Prefix{}) {
		t.Error("addresses are not the networks that they should be")
	}
	for n := range 10 * maxClients { // over a long time
		l.allow(address(fmt.Sprintf("[2001:db8:%x:%x::1]:1", n>>16, n&0xffff)), now.Add(time.Duration(n)*time.Minute))
	}
	if n := len(l.clients); n > maxClients {
		t.Errorf("%d addresses are remembered", n)
	}
}
