package servertest

import (
	"fmt"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestStore_KeepsTheRules(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	runRules(t, connect(t, start(t, 1)...), etcdstore.Config{})
}

// runRules runs the rules of a store, each under a prefix of its own.
func runRules(t *testing.T, client *clientv3.Client, cfg etcdstore.Config) {
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		cfg.Prefix = fmt.Sprint("t", n.Add(1))
		migrate(t, client, cfg)
		return open(t, client, cfg)
	})
}

func TestStore_TheClockOfTheProcessDoesNotMatter(t *testing.T) {
	t.Parallel()
	server := start(t, 1)
	var n atomic.Int64
	storetest.RunClock(t, func(t *testing.T) func(*testing.T) onlyonce.Store {
		cfg := etcdstore.Config{Prefix: fmt.Sprint("t", n.Add(1))}
		migrate(t, connect(t, server...), cfg)
		return func(t *testing.T) onlyonce.Store { return open(t, connect(t, server...), cfg) }
	})
}
