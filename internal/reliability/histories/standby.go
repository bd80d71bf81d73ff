//go:build linux

package histories

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A StandbyBackend is a database on a PostgreSQL server of the test's own, with a standby.
// Clients reach both servers through cutting proxies, and find the primary by themselves.
type StandbyBackend struct {
	servers          *faults.Pair
	primary, standby *faults.CuttingProxy // in front of the servers
	database         string
}

// NewStandbyBackend creates a database on the server, which becomes the primary, and starts a
// standby. names is its synchronous_standby_names: '*' makes commits wait for the standby.
func NewStandbyBackend(s *faults.Server, names string) (b *StandbyBackend, err error) {
	b = &StandbyBackend{database: "histories"}
	if b.servers, err = faults.NewStandbyPair(s, names); err != nil {
		return nil, err
	}
	if b.primary, err = faults.NewCuttingProxy(s.Address()); err == nil {
		b.standby, err = faults.NewCuttingProxy(b.servers.Replica.Address())
	}
	if err == nil {
		_, err = s.Admin.Exec("CREATE DATABASE " + b.database)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close ends the cutting proxies and the servers.
func (b *StandbyBackend) Close() error {
	for _, c := range []*faults.CuttingProxy{b.primary, b.standby} {
		if c != nil {
			c.Close()
		}
	}
	return b.servers.Close()
}

// Plan returns the plan for a store on the database.
func (b *StandbyBackend) Plan(name, store string, seed uint64, calls int) Plan {
	place := Place{Store: store, Pool: 8, DSN: fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable&target_session_attrs=read-write",
		b.primary.Address(), b.standby.Address(), b.database)}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 24, Slack: clockSlack, MayUndo: true,
		Open: func() (Database, error) {
			return migrated("pgx", place,
				"CREATE TABLE business (command VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL)", "CREATE INDEX business_command ON business (command)")
		},
	}
}

// Faults returns the faults of the servers and of the network.
func (b *StandbyBackend) Faults() []Fault {
	return append(append(networkFaults(b.primary), networkFaults(b.standby)...),
		Fault{"connections killed", 4, func(_ *Run, rng *rand.Rand) error {
			_, err := b.servers.Primary.KillConnections(func() bool { return rng.IntN(3) > 0 })
			return err
		}},
		Fault{"standbys cut off", 6, func(_ *Run, rng *rand.Rand) error {
			if err := b.cutOff(rng); err != nil {
				return err
			}
			return b.servers.Rejoin()
		}},
		Fault{"failovers", 6, b.failover})
}

// cutOff cuts the standby off for a while, so that commits wait for it. They become visible
// without the standby when their connections are killed.
func (b *StandbyBackend) cutOff(rng *rand.Rand) error {
	b.servers.CutOff()
	for range 1 + rng.IntN(3) {
		time.Sleep(time.Duration(rng.Int64N(int64(2 * short))))
		if _, err := b.servers.Primary.KillConnections(func() bool { return rng.IntN(2) > 0 }); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(rng.Int64N(int64(2 * short))))
	return nil
}

// failover kills the primary, often while the standby is cut off from it, and promotes the
// standby. Another standby takes its place.
func (b *StandbyBackend) failover(r *Run, rng *rand.Rand) error {
	if rng.IntN(3) > 0 {
		if err := b.cutOff(rng); err != nil {
			return err
		}
	}
	r.paused.Add(1)
	defer r.paused.Add(-1)
	if err := b.servers.Promote(); err != nil {
		return err
	}
	b.primary, b.standby = b.standby, b.primary
	if err := b.servers.Follow(); err != nil {
		return err
	}
	b.standby.SetTarget(b.servers.Replica.Address())
	return nil
}
