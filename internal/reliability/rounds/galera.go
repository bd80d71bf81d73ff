//go:build linux

package rounds

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A galera is a cluster of three nodes, of which one has all clients.
type galera struct {
	shared  string // the directory with the data that new nodes start from
	cluster *faults.Galera
	writer  int                  // the number of the node that has the clients
	clients *faults.CuttingProxy // in front of that node
}

// NewGalera starts a cluster of three nodes.
func NewGalera() (System, error) {
	g := new(galera)
	err := g.start()
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *galera) start() (err error) {
	if g.shared, err = newShared(); err != nil {
		return err
	}
	if g.cluster, err = faults.NewGalera(g.shared); err != nil {
		return err
	}
	writer := g.cluster.Nodes[g.writer]
	if g.clients, err = faults.NewCuttingProxy(writer.Address()); err != nil {
		return err
	}
	return createDatabase(faults.MariaDB, writer)
}

// Open opens a store with connections of its own.
func (g *galera) Open(ctx context.Context, proxies *Proxies) (Store, func(), error) {
	dsn, err := dsnThrough(proxies, g.clients, faults.MariaDB)
	if err != nil {
		return nil, nil, err
	}
	return faults.OpenStore(ctx, "mysql", dsn+"?wsrep_sync_wait=7", connections, "galera")
}

// Kill kills the node that has the clients. They all move to the next one, and the killed node
// joins the cluster again.
func (g *galera) Kill(context.Context, *rand.Rand) error {
	killed := g.cluster.Nodes[g.writer]
	killed.Kill()
	g.writer = (g.writer + 1) % len(g.cluster.Nodes)
	writer := g.cluster.Nodes[g.writer]
	g.clients.SetTarget(writer.Address())
	if err := g.cluster.Await(writer, len(g.cluster.Nodes)-1); err != nil {
		return err
	}
	if err := killed.Start(); err != nil {
		return err
	}
	return g.cluster.Await(killed, len(g.cluster.Nodes))
}

// Close ends the nodes.
func (g *galera) Close() (err error) {
	if g.clients != nil {
		g.clients.Close()
	}
	if g.cluster != nil {
		err = g.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(g.shared))
}
