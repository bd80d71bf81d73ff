//go:build linux

package rounds

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// natsServers is one server, or several that all keep the records.
type natsServers struct{ natsserver.Cluster }

// NewNATS starts size servers.
func NewNATS(size int) (System, error) {
	servers, err := faults.StartNATS(size)
	if err != nil {
		return nil, err
	}
	return natsServers{servers}, nil
}

// url returns the URL of the store.
func (n natsServers) url() string { return faults.NATSURL(n.Addresses()) }

// A natsDialer dials through the proxies.
type natsDialer struct{ proxies *Proxies }

func (d natsDialer) Dial(network, address string) (net.Conn, error) {
	address, err := d.proxies.AddressFor(address)
	if err != nil {
		return nil, err
	}
	return net.Dial(network, address)
}

// Open opens a store with a connection of its own.
func (n natsServers) Open(ctx context.Context, proxies *Proxies) (Store, func(), error) {
	js, cfg, err := faults.DialNATS(n.url(), natsDialer{proxies})
	if err != nil {
		return nil, nil, err
	}
	s, err := natsstore.Open(ctx, js, cfg)
	if err != nil {
		js.Conn().Close()
		return nil, nil, err
	}
	return s, func() { _ = s.Close(); js.Conn().Close() }, nil // the connection may have been cut
}

// Kill kills the server that leads the stream, and starts it again.
func (n natsServers) Kill(ctx context.Context, _ *rand.Rand) error {
	leader, err := n.leader(ctx)
	if err != nil {
		return err
	}
	killed := n.Cluster[leader]
	killed.Kill()
	for len(n.Cluster) > 1 {
		next, err := n.leader(ctx)
		if err != nil {
			return err
		}
		if next != leader {
			break
		}
	}
	return killed.Launch()
}

// leader returns the number of the server that leads the stream, once one does.
func (n natsServers) leader(ctx context.Context) (int, error) {
	if len(n.Cluster) == 1 {
		return 0, nil
	}
	js, _, err := faults.DialNATS(n.url(), nil)
	if err != nil {
		return 0, err
	}
	defer js.Conn().Close()
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		callCtx, cancel := context.WithTimeout(ctx, time.Second)
		s, err := js.Stream(callCtx, natsstore.DefaultStream)
		cancel()
		if err != nil || s.CachedInfo().Cluster == nil {
			continue
		}
		for i, server := range n.Cluster {
			if server.Name == s.CachedInfo().Cluster.Leader {
				return i, nil
			}
		}
	}
	return 0, ctx.Err()
}
