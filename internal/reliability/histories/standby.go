//go:build linux

package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A StandbyBackend is a database on a PostgreSQL server of one's own with a standby. Clients reach both servers through cutters, and look for the primary by
// themselves.
type StandbyBackend struct {
	primary, standby node
	replication      *faults.Cutter // between the two servers
	database         string
}

// A node is a server that clients reach through a cutter, which stays when another server
// takes the server's place.
type node struct {
	server  *faults.Server
	clients *faults.Cutter
}

// NewStandbyBackend makes a database on the server, which becomes the primary, and starts a
// standby. names is its synchronous_standby_names: '*' makes commits wait for the standby.
func NewStandbyBackend(s *faults.Server, names string) (b *StandbyBackend, err error) {
	b = &StandbyBackend{primary: node{server: s}, database: "histories"}
	for _, n := range []*node{&b.primary, &b.standby} {
		if n.clients, err = faults.NewCutter(s.Address()); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	b.standby.clients.Lead("")
	for _, statement := range []string{"CREATE DATABASE " + b.database, "ALTER SYSTEM SET synchronous_standby_names = '" + names + "'"} {
		if _, err := s.Admin.Exec(statement); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	if err := s.Restart(); err != nil { // so that commits wait for a standby from now on
		return nil, errors.Join(err, b.Close())
	}
	if err := b.follow(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// follow starts a standby, and returns when it follows the primary.
func (b *StandbyBackend) follow() (err error) {
	if b.replication != nil {
		b.replication.Close()
	}
	if b.replication, err = faults.NewCutter(b.primary.server.Address()); err != nil {
		return err
	}
	if b.standby.server, err = faults.NewStandby(b.primary.server, b.replication.Address()); err != nil {
		return err
	}
	b.standby.clients.Lead(b.standby.server.Address())
	return b.connected()
}

// connected waits until the primary sends to the standby.
func (b *StandbyBackend) connected() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		var n int
		err := b.primary.server.Admin.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&n)
		if err == nil && n > 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the standby does not follow the primary")
}

// Close ends the cutters and the servers, but for the first.
func (b *StandbyBackend) Close() (err error) {
	for _, c := range []*faults.Cutter{b.primary.clients, b.standby.clients, b.replication} {
		if c != nil {
			c.Close()
		}
	}
	for _, n := range []node{b.primary, b.standby} {
		if n.server != nil {
			err = errors.Join(err, n.server.Close())
		}
	}
	return err
}

// Plan is the plan for a store on the database.
func (b *StandbyBackend) Plan(name, store string, seed uint64, calls int) Plan {
	place := Place{Store: store, Pool: 8, DSN: fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable&target_session_attrs=read-write",
		b.primary.clients.Address(), b.standby.clients.Address(), b.database)}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, Each: 9, Keys: 24, Slack: clockSlack, Undone: true,
		Open: func() (Database, error) {
			return migrated("pgx", place,
				"CREATE TABLE business (command VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL)", "CREATE INDEX business_command ON business (command)")
		},
	}
}

// Faults are what can go wrong with the servers and on the way to them.
func (b *StandbyBackend) Faults() []Fault {
	return append(append(onTheWay(b.primary.clients), onTheWay(b.standby.clients)...),
		Fault{"connections killed", 4, func(_ *Run, rng *rand.Rand) error {
			_, err := b.primary.server.Cut(func() bool { return rng.IntN(3) > 0 })
			return err
		}},
		Fault{"standbys cut off", 6, func(_ *Run, rng *rand.Rand) error {
			if err := b.cutOff(rng); err != nil {
				return err
			}
			b.replication.Lead(b.primary.server.Address())
			return b.connected()
		}},
		Fault{"failovers", 6, b.failover})
}

// cutOff cuts the standby off for a while. Commits wait for it then, and become visible
// without it when their connections are killed.
func (b *StandbyBackend) cutOff(rng *rand.Rand) error {
	b.replication.Lead("")
	for range 1 + rng.IntN(3) {
		time.Sleep(time.Duration(rng.Int64N(int64(2 * short))))
		if _, err := b.primary.server.Cut(func() bool { return rng.IntN(2) > 0 }); err != nil {
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
	b.primary.server.Kill()
	b.primary.clients.Lead("")
	if err := b.standby.server.Promote(); err != nil {
		return err
	}
	b.primary, b.standby = b.standby, b.primary
	if err := b.standby.server.Close(); err != nil {
		return err
	}
	return b.follow()
}
