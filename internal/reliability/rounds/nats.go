//go:build linux

package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// natsServers are one server, or several that all keep the records.
type natsServers struct {
	servers []*natsserver.Server
	url     string
}

// NewNATS starts so many servers.
func NewNATS(size int) (System, error) {
	n := &natsServers{}
	var err error
	for range 5 { // another process may take a port that was free
		if err = n.launch(size); err == nil {
			break
		}
		if e := n.Close(); e != nil {
			return nil, errors.Join(err, e)
		}
	}
	if err == nil {
		err = n.migrate()
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *natsServers) launch(size int) error {
	n.servers = nil
	var routes, addresses []string
	for range size {
		routes = append(routes, "nats://127.0.0.1:"+testserver.FreePort())
	}
	for i, route := range routes {
		settings := "jetstream: enabled\n"
		if size > 1 {
			settings += fmt.Sprintf("cluster { name: c, listen: %q, no_advertise: true, routes: [%s] }\n", strings.TrimPrefix(route, "nats://"), strings.Join(routes, ", "))
		}
		s, err := natsserver.New(fmt.Sprint("n", i), settings)
		if err != nil {
			return err
		}
		n.servers = append(n.servers, s)
		if err := s.Launch(); err != nil {
			return err
		}
		addresses = append(addresses, s.Address())
	}
	// They have the same clock.
	n.url = fmt.Sprintf("nats://%s?replicas=%d&clock_skew=1ms&accept_risks=%s", strings.Join(addresses, ","), size, natsstore.RiskSyncInterval)
	return nil
}

// migrate sets up the store, once the servers have found each other.
func (n *natsServers) migrate() error {
	js, cfg, err := n.dial(nil)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, err := natsstore.Migrate(ctx, js, cfg)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A natsDialer dials on the ways.
type natsDialer struct{ ways *Ways }

func (d natsDialer) Dial(network, address string) (net.Conn, error) {
	address, err := d.ways.To(address)
	if err != nil {
		return nil, err
	}
	return net.Dial(network, address)
}

// dial connects to the servers.
func (n *natsServers) dial(ways *Ways) (jetstream.JetStream, natsstore.Config, error) {
	u, err := natsstore.ParseURL(n.url)
	if err != nil {
		return nil, natsstore.Config{}, err
	}
	if ways != nil {
		u.Client.CustomDialer = natsDialer{ways}
	}
	u.Client.ReconnectWait = 10 * time.Millisecond
	u.Client.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // the calls fail, too
	conn, err := u.Client.Connect()
	if err != nil {
		return nil, natsstore.Config{}, err
	}
	js, err := jetstream.New(conn)
	return js, u.Config, err
}

// Open opens a store with a connection of its own.
func (n *natsServers) Open(ctx context.Context, ways *Ways) (Store, func(), error) {
	js, cfg, err := n.dial(ways)
	if err != nil {
		return nil, nil, err
	}
	s, err := natsstore.Open(ctx, js, cfg)
	if err != nil {
		js.Conn().Close()
		return nil, nil, err
	}
	return s, func() { _ = s.Close(); js.Conn().Close() }, nil // which was cut, perhaps
}

// Kill kills the server that leads the stream, and starts it again.
func (n *natsServers) Kill(ctx context.Context, _ *rand.Rand) error {
	leader, err := n.leader(ctx)
	if err != nil {
		return err
	}
	killed := n.servers[leader]
	killed.Kill()
	for len(n.servers) > 1 {
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
func (n *natsServers) leader(ctx context.Context) (int, error) {
	if len(n.servers) == 1 {
		return 0, nil
	}
	js, _, err := n.dial(nil)
	if err != nil {
		return 0, err
	}
	defer js.Conn().Close()
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		s, err := js.Stream(asking, natsstore.DefaultStream)
		cancel()
		if err != nil || s.CachedInfo().Cluster == nil {
			continue
		}
		for i, server := range n.servers {
			if server.Name == s.CachedInfo().Cluster.Leader {
				return i, nil
			}
		}
	}
	return 0, ctx.Err()
}

// Close ends the servers.
func (n *natsServers) Close() (err error) {
	for _, s := range n.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}
