//go:build linux

package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/onlyonce-go/onlyonce/internal/etcdserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
)

func init() { openers["etcd"] = openEtcd }

// etcdRecords is a store in etcd, which deletes expired records by itself.
type etcdRecords struct {
	*etcdstore.Store
	client *clientv3.Client
}

func (etcdRecords) Purge(context.Context, int) (int, error) { return 0, nil }

// etcdDatabase is a store without transactions that is closed at the end.
type etcdDatabase struct {
	memory
	records etcdRecords
}

func (d etcdDatabase) close() error {
	return errors.Join(d.records.Close(), d.records.client.Close())
}

// dialEtcd connects to the members of a store's URL.
func dialEtcd(raw string) (*clientv3.Client, etcdstore.Config, error) {
	u, err := etcdstore.ParseURL(raw)
	if err != nil {
		return nil, etcdstore.Config{}, err
	}
	u.Client.Logger = zap.NewNop() // the calls fail, too
	client, err := clientv3.New(u.Client)
	return client, u.Config, err
}

func openEtcd(p Place) (Database, error) {
	client, cfg, err := dialEtcd(p.DSN)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := etcdstore.Open(ctx, client, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	r := etcdRecords{s, client}
	return etcdDatabase{memory{r}, r}, nil
}

// An EtcdBackend is a store in etcd on members of the test's own, which clients reach through
// cutting proxies.
type EtcdBackend struct {
	cluster *etcdserver.Cluster
	cutters []*faults.CuttingProxy // one in front of each member
	direct  *clientv3.Client       // to the members, without the proxies
}

// NewEtcdBackend starts size members, and sets up the store.
func NewEtcdBackend(size int) (b *EtcdBackend, err error) {
	b = &EtcdBackend{}
	if err := b.launch(size); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *EtcdBackend) launch(size int) (err error) {
	if b.cluster, err = etcdserver.StartCluster(size); err != nil {
		return err
	}
	for _, address := range b.cluster.Clients() {
		c, err := faults.NewCuttingProxy(address)
		if err != nil {
			return err
		}
		b.cutters = append(b.cutters, c)
	}
	var cfg etcdstore.Config
	if b.direct, cfg, err = dialEtcd(etcdURL(b.cluster.Clients())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = etcdstore.Migrate(ctx, b.direct, cfg)
	return err
}

// etcdURL returns the URL of a store on the members at the addresses.
func etcdURL(addresses []string) string {
	return fmt.Sprintf("etcd://%s?members=%d", strings.Join(addresses, ","), len(addresses))
}

// Close ends the cutting proxies and the members.
func (b *EtcdBackend) Close() (err error) {
	if b.direct != nil {
		err = b.direct.Close()
	}
	for _, c := range b.cutters {
		c.Close()
	}
	if b.cluster != nil {
		err = errors.Join(err, b.cluster.Close())
	}
	return err
}

// etcdLag is how far the clock of a store in etcd may fall behind: by up to five seconds at
// once, and by the time between a publication and its reading whenever a process begins.
const etcdLag = time.Minute

// Plan returns the plan for a store on the members.
func (b *EtcdBackend) Plan(name string, seed uint64, calls int) Plan {
	var addresses []string
	for _, c := range b.cutters {
		addresses = append(addresses, c.Address())
	}
	place := Place{Store: "etcd", Pool: 1, DSN: etcdURL(addresses)}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 24, Slack: clockSlack, Lag: etcdLag,
		Open: func() (Database, error) { return openEtcd(place) },
	}
}

// Faults returns the faults of the members and of the network.
func (b *EtcdBackend) Faults(kills int) []Fault {
	list := []Fault{
		{"connections killed", 4, func(*Run, *rand.Rand) error {
			for i, c := range b.cutters {
				c.SetTarget(b.cluster.Servers[i].Client)
			}
			return nil
		}},
		{"servers killed", kills, func(r *Run, rng *rand.Rand) error {
			return b.restart(r, rng.IntN(len(b.cluster.Servers)))
		}},
	}
	for _, c := range b.cutters {
		list = append(list, networkFaults(c)...)
	}
	return list
}

func (b *EtcdBackend) restart(r *Run, member int) error {
	r.paused.Add(1)
	defer r.paused.Add(-1)
	return b.cluster.Servers[member].Restart()
}

// leader returns the number of the leader, and its ID. The number is -1 if there is none.
func (b *EtcdBackend) leader() (number int, id uint64) {
	for i, address := range b.cluster.Clients() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		about, err := b.direct.Status(ctx, address)
		cancel()
		if err == nil && about.Leader == about.Header.MemberId {
			return i, about.Leader
		}
	}
	return -1, 0
}

// LeadersKilled kills the leader.
func (b *EtcdBackend) LeadersKilled(weight int) Fault {
	return Fault{"leaders killed", weight, func(r *Run, _ *rand.Rand) error {
		i, _ := b.leader()
		if i < 0 {
			return nil
		}
		return b.restart(r, i)
	}}
}

// LeadersIsolated partitions the leader from the other members, but not from the clients, for
// up to three seconds. That is often long enough for another member to become the leader.
func (b *EtcdBackend) LeadersIsolated(weight int) Fault {
	return Fault{"leaders isolated", weight, func(_ *Run, rng *rand.Rand) error {
		i, _ := b.leader()
		if i < 0 {
			return nil
		}
		b.cluster.Isolate(i)
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
		b.cluster.Heal()
		return nil
	}}
}

// Elections make the leader give way to another member.
func (b *EtcdBackend) Elections(weight int) Fault {
	return Fault{"leaders changed", weight, func(_ *Run, rng *rand.Rand) error {
		i, id := b.leader()
		if i < 0 {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		list, err := b.direct.MemberList(ctx)
		if err != nil {
			return nil
		}
		to := list.Members[rng.IntN(len(list.Members))].ID
		leader, _, err := dialEtcd(etcdURL(b.cluster.Clients()[i : i+1]))
		if err != nil {
			return err
		}
		defer leader.Close()
		if to != id {
			_, _ = leader.MoveLeader(ctx, to) // another may lead meanwhile
		}
		return nil
	}}
}

// Backup copies the data of the first member, and returns a fault that restores the copy.
func (b *EtcdBackend) Backup(dir string) (Fault, error) {
	member := b.cluster.Servers[0]
	if err := member.Copy(dir); err != nil {
		return Fault{}, err
	}
	return Fault{"snapshots restored", 1, func(r *Run, _ *rand.Rand) error {
		r.paused.Add(1)
		defer r.paused.Add(-1)
		return errors.Join(member.Restore(dir), member.Await())
	}}, nil
}
