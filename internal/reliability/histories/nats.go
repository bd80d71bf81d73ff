//go:build linux

package histories

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func init() { openers["nats"] = openNATS }

// natsRecords is a store in NATS, which deletes expired records by itself.
type natsRecords struct {
	*natsstore.Store
	conn *nats.Conn
}

func (natsRecords) Purge(context.Context, int) (int, error) { return 0, nil }

// natsDatabase is a store without transactions that is closed at the end.
type natsDatabase struct {
	memory
	records natsRecords
}

func (d natsDatabase) close() error {
	err := d.records.Close()
	d.records.conn.Close()
	return err
}

func openNATS(p Place) (Database, error) {
	js, cfg, err := faults.DialNATS(p.DSN, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := natsstore.Open(ctx, js, cfg)
	if err != nil {
		js.Conn().Close()
		return nil, err
	}
	r := natsRecords{s, js.Conn()}
	return natsDatabase{memory{r}, r}, nil
}

// A NATSBackend is a store in NATS on servers of the test's own, which clients reach through
// cutting proxies.
type NATSBackend struct {
	servers natsserver.Cluster
	cutters []*faults.CuttingProxy // one in front of each server
}

// NewNATSBackend starts size servers, which all keep the records, and sets up the store.
func NewNATSBackend(size int) (b *NATSBackend, err error) {
	b = &NATSBackend{}
	if b.servers, err = faults.StartNATS(size); err != nil {
		return nil, err
	}
	for _, address := range b.servers.Addresses() {
		c, err := faults.NewCuttingProxy(address)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.cutters = append(b.cutters, c)
	}
	return b, nil
}

// Close ends the cutting proxies and the servers.
func (b *NATSBackend) Close() error {
	for _, c := range b.cutters {
		c.Close()
	}
	return b.servers.Close()
}

// Plan returns the plan for a store on the servers.
func (b *NATSBackend) Plan(name string, seed uint64, calls int) Plan {
	var addresses []string
	for _, c := range b.cutters {
		addresses = append(addresses, c.Address())
	}
	place := Place{Store: "nats", Pool: 1, DSN: faults.NATSURL(addresses)}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 24, Slack: clockSlack, Resends: 3,
		Open: func() (Database, error) { return openNATS(place) },
	}
}

// Faults returns the faults of the servers and of the network.
func (b *NATSBackend) Faults(kills int) []Fault {
	list := []Fault{
		{"connections killed", 4, func(*Run, *rand.Rand) error {
			for i, c := range b.cutters {
				c.SetTarget(b.servers[i].Address())
			}
			return nil
		}},
		{"servers killed", kills, func(r *Run, rng *rand.Rand) error {
			r.paused.Add(1)
			defer r.paused.Add(-1)
			return b.servers[rng.IntN(len(b.servers))].Restart()
		}},
	}
	for _, c := range b.cutters {
		list = append(list, networkFaults(c)...)
	}
	return list
}

// Elections make the leader of the stream give way to another server.
func (b *NATSBackend) Elections(weight int) Fault {
	return Fault{"leaders changed", weight, func(_ *Run, rng *rand.Rand) error {
		conn, err := nats.Connect("nats://" + b.servers[rng.IntN(len(b.servers))].Address())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _ = conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+natsstore.DefaultStream, nil, time.Second) // there may be none
		return nil
	}}
}

// Backup copies the data of the first server, and returns a fault that restores the copy.
func (b *NATSBackend) Backup(dir string) (Fault, error) {
	stored := filepath.Join(b.servers[0].Dir, "jetstream")
	b.servers[0].Kill()
	if err := errors.Join(os.CopyFS(dir, os.DirFS(stored)), b.servers[0].Launch()); err != nil {
		return Fault{}, err
	}
	return Fault{"backups restored", 1, func(r *Run, _ *rand.Rand) error {
		r.paused.Add(1)
		defer r.paused.Add(-1)
		b.servers[0].Kill()
		return errors.Join(os.RemoveAll(stored), os.CopyFS(stored, os.DirFS(dir)), b.servers[0].Launch())
	}}, nil
}
