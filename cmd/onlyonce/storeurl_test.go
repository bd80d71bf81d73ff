package main

import (
	"strings"
	"testing"
)

func TestAServersURLIsToldToItsDriverAndShownWithoutItsPassword(t *testing.T) {
	for raw, want := range map[string]storeURL{
		"postgres://ada:s3cret@db:5433/shop?sslmode=disable&password=s3cret": {engine: "postgres", server: "postgres://ada:xxxxx@db:5433/shop", source: "postgres://ada:s3cret@db:5433/shop?sslmode=disable&password=s3cret"},
		"mysql://ada:s3cret@db/shop":                                         {engine: "mysql", server: "mysql://ada:xxxxx@db/shop", source: "ada:s3cret@tcp(db:3306)/shop"},
		"mariadb://ada:s%40cret@[::1]:3307/shop?charset=latin1":              {engine: "mysql", server: "mariadb://ada:xxxxx@[::1]:3307/shop", source: "ada:s@cret@tcp([::1]:3307)/shop?charset=latin1"},
	} {
		got, err := parseStoreURL(raw)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
		if shown := got.String(); strings.Contains(shown, "cret") {
			t.Errorf("%s is shown", shown)
		}
	}
}

func TestAStoreURLThatIsNotRightIsRefusedWithoutItsPassword(t *testing.T) {
	for _, raw := range []string{"postgres:s3cret", "postgres://u:s3cret@/d", "postgres://u:s3cret@h", "mysql://u:s3cret@h/", "mysql://u:s3cret@h:port/d", "mysql://u:s3cret@h/d?timeout=s3cret", "redis://u:s3cret@h"} {
		u, err := parseStoreURL(raw)
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "store URL") && !strings.Contains(err.Error(), "stores of the scheme") {
			t.Errorf("%s: %+v, %v", raw, u, err)
		}
	}
}
