//go:build linux

package histories

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

func init() {
	openers["postgres"] = openServer("pgx", "$1", "$2")
	openers["mariadb"] = openServer("mysql", "?")
	openers["pgxstore"] = openPgx
}

// A Backend is a database on a server of the test's own, which clients reach through a cutting
// proxy.
type Backend struct {
	server   *faults.Server
	cutter   *faults.CuttingProxy
	database string
}

// NewBackend creates a database on the server, and a cutting proxy in front of it.
func NewBackend(s *faults.Server) (*Backend, error) {
	b := &Backend{server: s, database: "histories_" + strings.ToLower(rand.Text())}
	if _, err := s.Admin.Exec("CREATE DATABASE " + b.database); err != nil {
		return nil, err
	}
	var err error
	b.cutter, err = faults.NewCuttingProxy(s.Address())
	return b, err
}

// Close ends the cutting proxy.
func (b *Backend) Close() { b.cutter.Close() }

// Plan returns the plan for a store on the database.
func (b *Backend) Plan(name, store string, seed uint64, calls int) Plan {
	clean := Place{Store: store, DSN: b.server.Kind.DSN(b.server.Port, b.database), Pool: 8}
	through := clean
	through.DSN = strings.Replace(clean.DSN, b.server.Address(), b.cutter.Address(), 1)
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: through, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 24, Slack: clockSlack,
		Open: func() (Database, error) {
			return migrated(b.server.Kind.Driver, clean,
				"CREATE TABLE business (command VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL)", "CREATE INDEX business_command ON business (command)")
		},
	}
}

// openServer opens a store on a pool of database/sql.
func openServer(driver string, placeholders ...string) func(Place) (Database, error) {
	return func(p Place) (Database, error) {
		db, err := faults.Open(driver, p.DSN)
		if err != nil {
			return nil, err
		}
		return openSQL(db, p.Pool, placeholders...)
	}
}

func openPgx(p Place) (Database, error) {
	cfg, err := pgxpool.ParseConfig(p.DSN)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(p.Pool)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s, err := pgxstore.Open(ctx, pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return database[pgx.Tx, *pgxstore.Store]{
		Store: s, in: s,
		insert: func(ctx context.Context, tx pgx.Tx, key, row string) error {
			_, err := tx.Exec(ctx, "INSERT INTO business (command, name) VALUES ($1, $2)", key, row)
			return err
		},
		read: func(ctx context.Context, key string) ([]string, error) {
			rows, err := pool.Query(ctx, "SELECT name FROM business WHERE command = $1", key)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, pgx.RowTo[string])
		},
		closer: func() error {
			defer pool.Close()
			return s.Close()
		},
	}, nil
}

// Faults returns the faults of the server and of the network.
func (b *Backend) Faults(kills int) []Fault {
	return append([]Fault{
		{"connections killed", 4, func(_ *Run, rng *mathrand.Rand) error {
			_, err := b.server.KillConnections(func() bool { return rng.IntN(3) > 0 })
			return err
		}},
		{"servers killed", kills, func(r *Run, rng *mathrand.Rand) error {
			r.paused.Add(1) // calls to a dead server test nothing
			defer r.paused.Add(-1)
			return b.server.Restart()
		}},
	}, networkFaults(b.cutter)...)
}

// networkFaults returns the faults of the network.
func networkFaults(c *faults.CuttingProxy) []Fault {
	return []Fault{
		{"connections cut at some byte", 6, func(_ *Run, rng *mathrand.Rand) error {
			c.Arm(rng.IntN(2), rng.IntN(4000), rng.IntN(3))
			time.Sleep(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
			c.Disarm()
			return nil
		}},
		{"bytes delayed", 2, func(_ *Run, rng *mathrand.Rand) error {
			c.SetDelay(time.Duration(rng.Int64N(int64(short))))
			time.Sleep(time.Duration(rng.Int64N(int64(4 * short))))
			c.SetDelay(0)
			return nil
		}},
	}
}

// Clock moves the clock of the stores on the server. MariaDB's clock cannot be moved: instead,
// the floor of the fences is set ahead of it, as if the clock had been set back.
func (b *Backend) Clock(weight int) Fault {
	name := "clocks moved"
	if b.server.Kind.Driver == "mysql" {
		name = "fences put ahead"
	}
	return Fault{name, weight, func(_ *Run, rng *mathrand.Rand) error {
		db, err := faults.Open(b.server.Kind.Driver, b.server.Kind.DSN(b.server.Port, b.database))
		if err != nil {
			return err
		}
		defer db.Close()
		text := fmt.Sprintf(`CREATE OR REPLACE FUNCTION onlyonce_now() RETURNS bigint LANGUAGE sql VOLATILE
			AS $$ SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint + %d $$`, offset(rng).Microseconds())
		if b.server.Kind.Driver == "mysql" {
			text = fmt.Sprintf("UPDATE onlyonce_fence SET floor = GREATEST(floor, %d)", time.Now().Add(time.Minute).UnixMicro())
		}
		_, err = db.Exec(text)
		return err
	}}
}
