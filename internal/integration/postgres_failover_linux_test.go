package integration

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A takeover is a settled record that a primary has, and that the standby which takes over lacks.
type takeover struct {
	former, next *ownServer
	d            ownDatabase // on the former primary
	db           *sql.DB     // a pool of d
	id           onlyonce.ID // of the record
	gate         *standbyGate
}

func newTakeover(t *testing.T) *takeover {
	t.Helper()
	former := newOwnServer(t, faults.PostgreSQL)
	d := former.newDatabase(t)
	db := d.migrated(t)
	replication := newCutter(t, former)
	s := openOn(t, db)
	c := serverClaim("settled")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	next, err := faults.NewStandby(former.Server, replication.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
	replication.SetTarget("")
	gate := &standbyGate{t, former.admin}
	gate.shut()
	settled := make(chan error, 1)
	go func() {
		settled <- s.Settle(context.Background(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
	}()
	eventually(t, "the settlement is seen", func() bool {
		gate.terminate()
		var state string
		if err := db.QueryRow("SELECT state FROM onlyonce_records").Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state == "completed"
	})
	<-settled
	return &takeover{former: former, next: &ownServer{next, next.Admin}, d: d, db: db, id: c.ID, gate: gate}
}

// A lookup has read a record from the primary, and waits for the standbys, when another
// server takes over, which has no such record.
func TestPostgreSQL_NoResponseIsReturnedThatOnlyTheFormerPrimaryHad(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, d ownDatabase) onlyonce.Store{
		"sqlstore": func(t *testing.T, d ownDatabase) onlyonce.Store { return openOn(t, openPool(t, "pgx", d.dsn)) },
		"pgxstore": func(t *testing.T, d ownDatabase) onlyonce.Store { return openPgxstore(t, d.dsn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := newTakeover(t)
			clients := newCutter(t, over.former)
			reader := open(t, over.d.through(over.former, clients))
			results := make(chan asked, 2)
			look := func() {
				r, err := reader.Lookup(context.Background(), over.id)
				results <- asked{r, err}
			}
			count := func(condition string) (n int) {
				if err := over.former.admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND "+condition, databaseOf(t, over.d)).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			go look()
			eventually(t, "a lookup waits for the standbys", func() bool { return count("wait_event = 'SyncRep'") == 1 })
			go look()
			eventually(t, "another has read the record", func() bool { // so long ago that database/sql tries a connection before it uses it
				return name == "pgxstore" || count("state = 'idle' AND query LIKE '%FROM onlyonce_records%id = $1%' AND state_change < clock_timestamp() - interval '1 second'") > 0
			})
			if err := over.next.Promote(); err != nil {
				t.Fatal(err)
			}
			clients.SetTarget(over.next.Address())
			for range cap(results) {
				if a := <-results; a.err == nil && a.record.State != onlyonce.StateProcessing {
					t.Errorf("a lookup returned %+v, which the server does not have", a.record)
				}
			}
			eventually(t, "the new primary responds", func() bool {
				r, err := reader.Lookup(t.Context(), over.id)
				if errors.Is(err, onlyonce.ErrNotFound) || err == nil && r.State != onlyonce.StateProcessing {
					t.Fatalf("the new primary has %+v, error %v", r, err)
				}
				return err == nil
			})
		})
	}
}

// The former primary goes on beside the one that has taken over, and a pool has connections to both.
func TestPostgreSQL_NoResponseIsReturnedThatOnlyAFormerPrimaryHasWhichGoesOn(t *testing.T) {
	t.Parallel()
	over := newTakeover(t)
	if err := over.next.Promote(); err != nil {
		t.Fatal(err)
	}
	for name, stores := range map[string]struct {
		pools, lookups int
		open           func(t *testing.T, cfg *pgxpool.Config) onlyonce.Store
	}{
		"sqlstore": {1, 40, func(t *testing.T, cfg *pgxpool.Config) onlyonce.Store {
			db := stdlib.OpenDB(*cfg.ConnConfig)
			db.SetMaxIdleConns(-1) // every statement has a connection of its own
			t.Cleanup(func() { db.Close() })
			return openOn(t, db)
		}},
		"pgxstore": {12, 2, func(t *testing.T, cfg *pgxpool.Config) onlyonce.Store { return openPgxstoreWith(t, cfg) }}, // each keeps its connections
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			var moved atomic.Bool // no connection leads to the former primary any more
			var mu sync.Mutex
			cfg, err := pgxpool.ParseConfig(over.d.dsn)
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				to := over.next
				if !moved.Load() && rng.IntN(2) == 0 {
					to = over.former
				}
				return new(net.Dialer).DialContext(ctx, network, to.Address())
			}
			for range stores.pools {
				moved.Store(false)
				s := stores.open(t, cfg.Copy())
				look := func() asked {
					got := make(chan asked, 1)
					go func() {
						r, err := s.Lookup(context.Background(), over.id)
						got <- asked{r, err}
					}()
					for {
						select {
						case a := <-got:
							if errors.Is(a.err, onlyonce.ErrNotFound) || a.err == nil && a.record.State != onlyonce.StateProcessing {
								t.Fatalf("a lookup returned %+v, error %v; the new primary has no such record", a.record, a.err)
							}
							return a
						default:
							over.gate.terminate() // which ends a wait for the standbys
						}
					}
				}
				for range stores.lookups {
					look()
				}
				moved.Store(true)
				eventually(t, "the new primary responds", func() bool { return look().err == nil })
			}
		})
	}
}

func databaseOf(t *testing.T, d ownDatabase) string {
	t.Helper()
	u, err := url.Parse(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path[1:]
}
