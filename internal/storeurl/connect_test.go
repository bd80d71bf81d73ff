package storeurl

import (
	"errors"
	"net"
	"testing"
	"time"
)

func TestStoreURL_AServerThatNeverAcceptsAConnectionIsAnError(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	u, err := Parse("mysql://app@" + silent.Addr().String() + "/shop")
	if err != nil {
		t.Fatal(err)
	}
	db, err := u.poolOf()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var over net.Error
	if err := u.ping(t.Context(), db, time.Millisecond); !errors.As(err, &over) || !over.Timeout() {
		t.Errorf("MySQL: %v", err)
	}
	for raw, want := range map[string]time.Duration{
		"postgres://app@h1,h2/shop":                                     connectWithin,
		"postgres://app@h1/shop?sslmode=disable&connect_timeout=7":      7 * time.Second,
		"postgres://app@h1/shop?connect_timeout=600&application_name=x": 10 * time.Minute,
	} {
		u, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := u.PoolConfig()
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.ConnConfig.ConnectTimeout; got != want {
			t.Errorf("%s: a host has %v to accept a connection, want %v", raw, got, want)
		}
	}
}
