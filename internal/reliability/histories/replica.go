//go:build linux

package histories

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A ReplicaBackend is a database on a MariaDB server of the test's own, with a replica. Clients
// reach the current primary at one address.
type ReplicaBackend struct {
	servers  *faults.Pair
	clients  *faults.CuttingProxy
	database string
}

// NewReplicaBackend creates a database on the server, which is of the kind faults.Replicated and
// becomes the primary, and starts a replica. With semiSync, commits wait for it.
func NewReplicaBackend(s *faults.Server, shared string, semiSync bool) (b *ReplicaBackend, err error) {
	b = &ReplicaBackend{database: "histories"}
	if b.servers, err = faults.NewReplicaPair(s, shared, semiSync); err != nil {
		return nil, err
	}
	if b.clients, err = faults.NewCuttingProxy(s.Address()); err == nil {
		_, err = s.Admin.Exec("CREATE DATABASE " + b.database)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close ends the cutting proxy and the servers.
func (b *ReplicaBackend) Close() error {
	if b.clients != nil {
		b.clients.Close()
	}
	return b.servers.Close()
}

// Plan returns the plan for a store on the database.
func (b *ReplicaBackend) Plan(name string, seed uint64, calls int) Plan {
	place := Place{Store: "mariadb", Pool: 8, DSN: fmt.Sprintf("root@tcp(%s)/%s", b.clients.Address(), b.database)}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 24, Slack: clockSlack, MayUndo: true,
		Open: func() (Database, error) {
			return migrated("mysql", place,
				"CREATE TABLE business (command VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL)", "CREATE INDEX business_command ON business (command)")
		},
	}
}

// Faults returns the faults of the servers and of the network. No connection is killed, because
// that makes the server confirm commits that no replica has.
func (b *ReplicaBackend) Faults() []Fault {
	return append(networkFaults(b.clients),
		Fault{"replicas cut off", 6, func(r *Run, rng *rand.Rand) error {
			if err := b.cutOff(r, rng); err != nil {
				return err
			}
			return b.servers.Rejoin()
		}},
		Fault{"failovers", 12, b.failover})
}

// cutOff cuts the replica off for a while, so that commits wait for it. Often, the primary is
// killed and restarted, and then shows the commits that were waiting.
func (b *ReplicaBackend) cutOff(r *Run, rng *rand.Rand) error {
	b.servers.CutOff()
	time.Sleep(time.Duration(rng.Int64N(int64(2 * short))))
	if rng.IntN(2) > 0 {
		r.paused.Add(1)
		err := b.servers.Primary.Restart()
		r.paused.Add(-1)
		if err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(rng.Int64N(int64(4 * short))))
	return nil
}

// failover kills the primary, often while the replica is cut off from it, and promotes the
// replica. Another replica takes its place.
func (b *ReplicaBackend) failover(r *Run, rng *rand.Rand) error {
	if rng.IntN(3) > 0 {
		if err := b.cutOff(r, rng); err != nil {
			return err
		}
	}
	r.paused.Add(1)
	defer r.paused.Add(-1)
	if err := b.servers.Promote(); err != nil {
		return err
	}
	b.clients.SetTarget(b.servers.Primary.Address())
	return b.servers.Follow()
}
