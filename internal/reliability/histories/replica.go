//go:build linux

package histories

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A ReplicaBackend is a database on a MariaDB server of one's own with a replica. Clients reach
// the primary at one address, which follows it.
type ReplicaBackend struct {
	primary, replica     *faults.Server
	clients, replication *faults.Cutter // the latter is between the two servers
	database, shared     string
	semiSync             bool
}

// NewReplicaBackend makes a database on the server, which is of the kind faults.Replicated and
// becomes the primary, and starts a replica. With semiSync, commits wait for it.
func NewReplicaBackend(s *faults.Server, shared string, semiSync bool) (b *ReplicaBackend, err error) {
	b = &ReplicaBackend{primary: s, database: "histories", shared: shared, semiSync: semiSync}
	if b.clients, err = faults.NewCutter(s.Address()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if _, err := s.Admin.Exec("CREATE DATABASE " + b.database); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := errors.Join(s.Serve(semiSync), b.follow()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// follow starts a replica, and returns when it follows the primary.
func (b *ReplicaBackend) follow() (err error) {
	if b.replication != nil {
		b.replication.Close()
	}
	if b.replication, err = faults.NewCutter(b.primary.Address()); err != nil {
		return err
	}
	if b.replica, err = faults.NewReplica(b.primary, b.replication.Address(), b.shared); err != nil {
		return err
	}
	return b.connected()
}

// connected waits until the replica receives what the primary commits.
func (b *ReplicaBackend) connected() error {
	var last string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		is, err := b.replica.Replication()
		if err != nil {
			return err
		}
		if is["Slave_IO_Running"] != "Yes" {
			last = is["Last_IO_Error"]
			continue
		}
		var name string
		var clients int
		err = b.primary.Admin.QueryRow("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'").Scan(&name, &clients)
		if err == nil && (clients > 0 || !b.semiSync) {
			return nil
		}
	}
	return fmt.Errorf("the replica does not follow the primary: %s", last)
}

// Close ends the cutters and the servers, but for the first.
func (b *ReplicaBackend) Close() (err error) {
	for _, c := range []*faults.Cutter{b.clients, b.replication} {
		if c != nil {
			c.Close()
		}
	}
	for _, s := range []*faults.Server{b.primary, b.replica} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// Plan is the plan for a store on the database.
func (b *ReplicaBackend) Plan(name string, seed uint64, calls int) Plan {
	place := Place{Store: "mariadb", Pool: 8, DSN: fmt.Sprintf("root@tcp(%s)/%s", b.clients.Address(), b.database)}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, Each: 9, Keys: 24, Slack: clockSlack, Undone: true,
		Open: func() (Database, error) {
			return migrated("mysql", place,
				"CREATE TABLE business (command VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL)", "CREATE INDEX business_command ON business (command)")
		},
	}
}

// Faults are what can go wrong with the servers and on the way to them. No connection is killed:
// that makes the server confirm commits that no replica has.
func (b *ReplicaBackend) Faults() []Fault {
	return append(onTheWay(b.clients),
		Fault{"replicas cut off", 6, func(r *Run, rng *rand.Rand) error {
			if err := b.cutOff(r, rng); err != nil {
				return err
			}
			b.replication.Lead(b.primary.Address())
			return b.connected()
		}},
		Fault{"failovers", 12, b.failover})
}

// cutOff cuts the replica off for a while. Commits wait for it then. Often, the primary is
// killed and started again, and shows what was waiting.
func (b *ReplicaBackend) cutOff(r *Run, rng *rand.Rand) error {
	b.replication.Lead("")
	time.Sleep(time.Duration(rng.Int64N(int64(2 * short))))
	if rng.IntN(2) > 0 {
		r.paused.Add(1)
		err := b.primary.Restart()
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
	b.primary.Kill()
	b.clients.Lead("")
	if err := b.replica.Serve(b.semiSync); err != nil {
		return err
	}
	b.primary, b.replica = b.replica, b.primary
	b.clients.Lead(b.primary.Address())
	if err := b.replica.Close(); err != nil {
		return err
	}
	return b.follow()
}
