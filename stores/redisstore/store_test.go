package redisstore_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestStore_KeepsTheRules(t *testing.T) {
	server := startRedis(t)
	client := server.client(t)
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		cfg := redisstore.Config{Prefix: "t" + strconv.FormatInt(n.Add(1), 10)}
		if _, err := redisstore.Migrate(t.Context(), client, cfg); err != nil {
			t.Fatal(err)
		}
		return open(t, client, cfg)
	})
}

func TestStore_TheClockOfTheProcessDoesNotMatter(t *testing.T) {
	server := startRedis(t)
	var n atomic.Int64
	storetest.RunClock(t, func(t *testing.T) func(*testing.T) onlyonce.Store {
		cfg := redisstore.Config{Prefix: "t" + strconv.FormatInt(n.Add(1), 10)}
		if _, err := redisstore.Migrate(t.Context(), server.client(t), cfg); err != nil {
			t.Fatal(err)
		}
		return func(t *testing.T) onlyonce.Store {
			// In a bubble, time stands still while a connection is read from.
			return open(t, server.clientWith(t, func(o *rueidis.ClientOption) { o.MaxFlushDelay = 0 }), cfg)
		}
	})
}
