//go:build linux

package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func init() { openers["nats"] = openNATS }

// natsRecords is a store in NATS, which deletes what has expired by itself.
type natsRecords struct {
	*natsstore.Store
	conn *nats.Conn
}

func (natsRecords) Purge(context.Context, int) (int, error) { return 0, nil }

// natsDatabase is a store without transactions, which is closed.
type natsDatabase struct {
	memory
	records natsRecords
}

func (d natsDatabase) close() error {
	err := d.records.Close()
	d.records.conn.Close()
	return err
}

// dialNATS connects to the servers of a store's URL.
func dialNATS(raw string) (jetstream.JetStream, natsstore.Config, error) {
	u, err := natsstore.ParseURL(raw)
	if err != nil {
		return nil, natsstore.Config{}, err
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

func openNATS(p Place) (Database, error) {
	js, cfg, err := dialNATS(p.DSN)
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

// A NATSBackend is a store in NATS on servers of one's own, which clients reach through
// cutters.
type NATSBackend struct {
	servers []*natsserver.Server
	cutters []*faults.Cutter // one before each server
}

// NewNATSBackend starts so many servers, which all keep the records, and sets up the store.
func NewNATSBackend(size int) (b *NATSBackend, err error) {
	b = &NATSBackend{}
	for range 5 { // another process may take a port that was free
		if err = b.launch(size); err == nil {
			break
		}
		if e := b.Close(); e != nil {
			return nil, errors.Join(err, e)
		}
	}
	if err == nil {
		err = b.migrate()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *NATSBackend) launch(size int) error {
	b.servers, b.cutters = nil, nil
	var routes []string
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
		b.servers = append(b.servers, s)
		if err := s.Launch(); err != nil {
			return err
		}
		c, err := faults.NewCutter(s.Address())
		if err != nil {
			return err
		}
		b.cutters = append(b.cutters, c)
	}
	return nil
}

// natsURL returns the URL of a store that all servers at the addresses keep. They have the
// same clock, so that a lease ends at its time under another leader, too.
func natsURL(addresses []string) string {
	return fmt.Sprintf("nats://%s?replicas=%d&clock_skew=1ms&accept_risks=%s", strings.Join(addresses, ","), len(addresses), natsstore.RiskSyncInterval)
}

// migrate sets up the store, once the servers have found each other.
func (b *NATSBackend) migrate() error {
	var addresses []string
	for _, s := range b.servers {
		addresses = append(addresses, s.Address())
	}
	js, cfg, err := dialNATS(natsURL(addresses))
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		_, err := natsstore.Migrate(ctx, js, cfg)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Close ends the cutters and the servers.
func (b *NATSBackend) Close() (err error) {
	for _, c := range b.cutters {
		c.Close()
	}
	for _, s := range b.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Plan is the plan for a store on the servers.
func (b *NATSBackend) Plan(name string, seed uint64, calls int) Plan {
	var addresses []string
	for _, c := range b.cutters {
		addresses = append(addresses, c.Address())
	}
	place := Place{Store: "nats", Pool: 1, DSN: natsURL(addresses)}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, Each: 9, Keys: 24, Slack: clockSlack,
		Open: func() (Database, error) { return openNATS(place) },
	}
}

// Faults are what can go wrong with the servers and on the way to them.
func (b *NATSBackend) Faults(kills int) []Fault {
	list := []Fault{
		{"connections killed", 4, func(*Run, *rand.Rand) error {
			for i, c := range b.cutters {
				c.Lead(b.servers[i].Address())
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
		list = append(list, onTheWay(c)...)
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

// Backup copies what the first server has stored, and returns a fault that brings it back
// to that.
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
