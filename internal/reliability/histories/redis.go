//go:build linux

package histories

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

func init() { openers["redis"] = openRedis }

// redisRecords is a store in Redis, which deletes expired records by itself.
type redisRecords struct {
	*redisstore.Store
	client rueidis.Client
}

func (redisRecords) Purge(context.Context, int) (int, error) { return 0, nil }

// redisDatabase is a store without transactions that is closed at the end.
type redisDatabase struct {
	memory
	records redisRecords
}

func (d redisDatabase) close() error {
	err := d.records.Close()
	d.records.client.Close()
	return err
}

func openRedis(p Place) (Database, error) {
	o, cfg, err := redisstore.ParseURL(p.DSN)
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := redisstore.Open(ctx, client, cfg)
	if err != nil {
		client.Close()
		return nil, err
	}
	r := redisRecords{s, client}
	return redisDatabase{memory{r}, r}, nil
}

// A RedisBackend is a store in Redis on servers of the test's own, which clients reach through
// a cutting proxy.
type RedisBackend struct {
	primary  *redisserver.Server
	replica  *redisserver.Server // nil: there is none
	clients  *faults.CuttingProxy
	replicas *faults.CuttingProxy // between the two servers
}

// NewRedisBackend starts a server that flushes every write before it replies and, if
// replicated is true, a replica.
func NewRedisBackend(replicated bool) (b *RedisBackend, err error) {
	b = &RedisBackend{}
	if b.primary, err = redisserver.Start("--appendfsync", "always"); err == nil {
		b.clients, err = faults.NewCuttingProxy(b.primary.Address())
	}
	if err == nil {
		_, err = b.migrate()
	}
	if err == nil && replicated {
		if b.replica, err = redisserver.Start("--appendfsync", "always"); err == nil {
			err = b.follow()
		}
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *RedisBackend) migrate() (int, error) {
	o, cfg, err := redisstore.ParseURL("redis://" + b.primary.Address())
	if err != nil {
		return 0, err
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return redisstore.Migrate(context.Background(), client, cfg)
}

// follow makes the replica follow the primary, and returns when it has all data.
func (b *RedisBackend) follow() (err error) {
	if b.replicas, err = faults.NewCuttingProxy(b.primary.Address()); err != nil {
		return err
	}
	at, err := url.Parse("redis://" + b.replicas.Address())
	if err != nil {
		return err
	}
	if _, err := b.replica.Do("REPLICAOF", at.Hostname(), at.Port()); err != nil {
		return err
	}
	return b.awaitSync()
}

// awaitSync waits until the replica has all data, and has it on disk. After a full
// synchronization, Redis rewrites the append-only file. A server that is killed before that
// restarts with the old content of the file.
func (b *RedisBackend) awaitSync() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(
		b.primary.Await(ctx, "state=online", "INFO", "replication"),
		b.replica.Await(ctx, "master_link_status:up", "INFO", "replication"),
		b.replica.Await(ctx, "aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0", "INFO", "persistence"))
}

// Close ends the cutting proxies and the servers.
func (b *RedisBackend) Close() (err error) {
	for _, c := range []*faults.CuttingProxy{b.clients, b.replicas} {
		if c != nil {
			c.Close()
		}
	}
	for _, s := range []*redisserver.Server{b.primary, b.replica} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// Plan returns the plan for a store on the servers, with the parameters of its URL.
func (b *RedisBackend) Plan(name, parameters string, seed uint64, calls int) Plan {
	place := Place{Store: "redis", Pool: 8, DSN: "redis://" + b.clients.Address() + "?" + parameters}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 24, Slack: clockSlack,
		Open: func() (Database, error) { return openRedis(place) },
	}
}

// Faults returns the faults of the server and of the network.
func (b *RedisBackend) Faults(kills int) []Fault {
	return append(networkFaults(b.clients),
		Fault{"connections killed", 4, func(*Run, *rand.Rand) error {
			_, err := b.primary.Do("CLIENT", "KILL", "TYPE", "normal")
			return err
		}},
		Fault{"scripts forgotten", 2, func(*Run, *rand.Rand) error {
			_, err := b.primary.Do("SCRIPT", "FLUSH")
			return err
		}},
		Fault{"servers killed", kills, func(r *Run, _ *rand.Rand) error {
			r.paused.Add(1)
			defer r.paused.Add(-1)
			err := b.primary.Restart()
			if err == nil && b.replica != nil {
				err = b.awaitSync()
			}
			return err
		}})
}

// Failovers returns the faults of a replicated server. In a failover, as an operator makes it,
// the primary is cut off from its clients and from its replica, which takes its place. Bytes in
// transit between the two are lost.
func (b *RedisBackend) Failovers(weight int) []Fault {
	return []Fault{
		{"failovers", weight, func(r *Run, _ *rand.Rand) error {
			r.paused.Add(1)
			defer r.paused.Add(-1)
			b.clients.SetTarget("")
			b.replicas.Close()
			if _, err := b.replica.Do("REPLICAOF", "NO", "ONE"); err != nil {
				return err
			}
			b.primary, b.replica = b.replica, b.primary
			b.clients.SetTarget(b.primary.Address())
			return b.follow()
		}},
		{"replicas behind", weight, func(_ *Run, rng *rand.Rand) error {
			b.replicas.SetDelay(time.Duration(rng.Int64N(int64(2 * short))))
			return nil
		}},
	}
}
