package integration

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A standbyGate makes the commits of a server wait, while it is shut, for a synchronous
// standby that does not come.
type standbyGate struct {
	t     *testing.T
	admin *sql.DB
}

func (g *standbyGate) exec(text string) {
	g.t.Helper()
	if _, err := g.admin.ExecContext(context.Background(), text); err != nil {
		g.t.Errorf("%s: %v", text, err)
	}
}

// shut returns once commits wait.
func (g *standbyGate) shut() {
	g.t.Helper()
	g.exec("CREATE TABLE IF NOT EXISTS gate (n INT)")
	g.exec("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	g.exec("SELECT pg_reload_conf()")
	eventually(g.t, "a commit waits", func() bool {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = g.admin.ExecContext(context.Background(), "INSERT INTO gate VALUES (1)") // its connection may be terminated
		}()
		for waited := false; ; {
			select {
			case <-done:
				return waited
			default:
				waited = g.terminate() > 0 || waited
			}
		}
	})
}

func (g *standbyGate) open() {
	g.exec("ALTER SYSTEM RESET synchronous_standby_names")
	g.exec("SELECT pg_reload_conf()")
}

// waiting counts the commits that wait.
func (g *standbyGate) waiting() (n int) {
	g.t.Helper()
	if err := g.admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&n); err != nil {
		g.t.Fatal(err)
	}
	return n
}

// terminate ends the connections whose commits wait, and returns how many there were. They
// stay committed.
func (g *standbyGate) terminate() (n int) {
	g.t.Helper()
	if err := g.admin.QueryRow("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&n); err != nil {
		g.t.Fatal(err)
	}
	return n
}

// asks are the ways in which another process gets a response from a store.
type asks map[string]func(onlyonce.ID) (onlyonce.Record, error)

func asksOf[TX any](t *testing.T, s onlyonce.TxStore[TX]) asks {
	return asks{
		"Claim":  func(id onlyonce.ID) (onlyonce.Record, error) { return s.Claim(t.Context(), serverClaim(id.Key)) },
		"Lookup": func(id onlyonce.ID) (onlyonce.Record, error) { return s.Lookup(t.Context(), id) },
		"RunTx": func(id onlyonce.ID) (onlyonce.Record, error) {
			return s.RunTx(t.Context(), serverClaim(id.Key), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{}, errors.New("it ran")
			})
		},
	}
}

// PostgreSQL shows a commit whose wait for the standbys was broken off.
func TestPostgreSQL_NoResponseIsGivenBeforeItIsOnTheSynchronousStandby(t *testing.T) {
	server := newOwnServer(t, faults.PostgreSQL)
	d := server.newDatabase(t)
	db := d.migrated(t)
	gate := &standbyGate{t, server.admin}
	for name, open := range map[string]func() (onlyonce.Store, asks){
		"sqlstore": func() (onlyonce.Store, asks) {
			s := openOn(t, d.pool(t))
			return s, asksOf[*sql.Tx](t, s)
		},
		"pgxstore": func() (onlyonce.Store, asks) {
			s := openPgxstore(t, d.dsn)
			return s, asksOf[pgx.Tx](t, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open()
			_, others := open()
			c := serverClaim(name)
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			gate.shut()
			t.Cleanup(gate.open)
			interrupted := func(key, state string, call func() asked) (again func() chan asked) {
				first := make(chan asked, 1)
				go func() { first <- call() }()
				eventually(t, "its commit is seen", func() bool {
					gate.terminate()
					var is string
					err := db.QueryRow("SELECT state FROM onlyonce_records WHERE idem_key = $1", key).Scan(&is)
					if err != nil && !errors.Is(err, sql.ErrNoRows) {
						t.Fatal(err)
					}
					return is == state
				})
				return func() chan asked {
					second := make(chan asked, 1)
					go func() {
						got := <-first
						if got.err != nil {
							got = call()
						}
						second <- got
					}()
					return second
				}
			}
			began := serverClaim(name + ", began")
			claimAgain := interrupted(began.ID.Key, "processing", func() asked {
				r, err := s.Claim(t.Context(), began)
				return asked{r, err}
			})
			settleAgain := interrupted(c.ID.Key, "completed", func() asked {
				return asked{err: s.Settle(t.Context(), h, done("made"))}
			})
			answers := map[string]chan asked{"Claim again": claimAgain(), "Settle again": settleAgain()}
			for way, ask := range others {
				answers[way] = make(chan asked, 1)
				go func() {
					r, err := ask(c.ID)
					answers[way] <- asked{r, err}
				}()
			}
			eventually(t, "all callers wait for the standby", func() bool {
				for way, got := range answers {
					if len(got) > 0 {
						a := <-got
						t.Fatalf("%s got %+v, %v while it was not on the standby", way, a.record, a.err)
					}
				}
				return gate.waiting() > 1 // of each store
			})
			gate.open()
			for way, got := range answers { // or it gave up
				if a := <-got; a.err == nil && others[way] != nil && string(a.record.Result.Body) != "made" {
					t.Errorf("%s got %+v", way, a.record)
				}
			}
			for way, ask := range others {
				if r, err := ask(c.ID); err != nil || string(r.Result.Body) != "made" {
					t.Errorf("on the standby: %s got %+v, %v", way, r, err)
				}
			}
		})
	}
}
