package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// newGalera starts a cluster of three nodes.
func newGalera(t *testing.T) [3]*faults.Server {
	t.Helper()
	g, err := faults.NewGalera(sharedDir(t))
	if errors.Is(err, faults.ErrMissing) {
		needs.Service(t, "Galera", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g.Nodes
}

// galeraStore opens a store on a node. sync waits until the node has executed what the others have
// committed.
func galeraStore(t *testing.T, node *faults.Server, sync bool) *sqlstore.Store {
	t.Helper()
	dsn, risks := faults.MariaDB.DSN(node.Port, "shop"), []string{"galera"}
	if sync {
		dsn += "?wsrep_sync_wait=7"
	} else {
		risks = append(risks, "galera-sync-wait")
	}
	db := openPool(t, "mysql", dsn)
	rejected(t, db, risks...)
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: risks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the node may be gone
	return s
}

func TestGalera_WhatItKeepsWithOneWriterAndWithSeveral(t *testing.T) {
	needs.Time(t)
	nodes := newGalera(t)
	if _, err := nodes[0].Admin.Exec("CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	db := openPool(t, "mysql", faults.MariaDB.DSN(nodes[0].Port, "shop"))
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE own (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	first, second, stale := galeraStore(t, nodes[0], true), galeraStore(t, nodes[1], true), galeraStore(t, nodes[1], false)

	t.Run("two nodes do not grant one command twice", func(t *testing.T) {
		for i := range 50 {
			var records [2]onlyonce.Record
			var claims [2]onlyonce.Claim
			var wg sync.WaitGroup
			for j, s := range []*sqlstore.Store{first, second} {
				claims[j] = serverClaim(fmt.Sprint("claimed ", i))
				wg.Go(func() {
					var err error
					if records[j], err = s.Claim(t.Context(), claims[j]); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if records[0].Owner != records[1].Owner {
				t.Errorf("both got the command: %+v", records)
			}
		}
	})

	// GET_LOCK is not replicated.
	t.Run("two nodes run the function of one command at the same time, and commit one", func(t *testing.T) {
		var met sync.WaitGroup
		met.Add(2)
		var wg sync.WaitGroup
		for _, s := range []*sqlstore.Store{first, second} {
			wg.Go(func() {
				var once sync.Once
				r, err := s.RunTx(t.Context(), serverClaim("run"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
					once.Do(func() {
						met.Done()
						met.Wait()
					})
					_, err := tx.ExecContext(ctx, "INSERT INTO own (name) VALUES ('run')")
					return done("made"), err
				})
				if err != nil || string(r.Result.Body) != "made" {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		}
		wg.Wait()
		var rows int
		if err := db.QueryRow("SELECT count(*) FROM own").Scan(&rows); err != nil || rows != 1 {
			t.Errorf("%d rows, error %v", rows, err)
		}
	})

	held := serverClaim("held")
	var hold onlyonce.Hold
	t.Run("a node that lags reports a hold as lost, unless it waits", func(t *testing.T) {
		conn, err := nodes[1].Admin.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK"); err != nil { // it executes nothing now
			t.Fatal(err)
		}
		r, err := first.Claim(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		hold = onlyonce.Hold{ID: held.ID, Owner: held.Owner, Fence: r.Fence}
		if r, err := stale.Lookup(t.Context(), held.ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("without waiting: got %+v, error %v", r, err)
		}
		got := make(chan asked, 1)
		go func() {
			r, err := second.Lookup(t.Context(), held.ID)
			got <- asked{r, err}
		}()
		eventually(t, "the lookup waits", func() bool {
			if len(got) > 0 {
				t.Fatalf("got %+v while the node lagged", <-got)
			}
			var n int
			if err := conn.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT%FROM %onlyonce_records%' AND id <> CONNECTION_ID()").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n > 0
		})
		if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.err != nil || a.record.Owner != held.Owner {
			t.Errorf("got %+v, error %v", a.record, a.err)
		}
	})

	t.Run("another node has everything when the writer is killed", func(t *testing.T) {
		settled := serverClaim("settled")
		r, err := first.Claim(t.Context(), settled)
		if err == nil {
			err = first.Settle(t.Context(), onlyonce.Hold{ID: settled.ID, Owner: settled.Owner, Fence: r.Fence}, done("made"))
		}
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].Kill()
		eventually(t, "the others go on", func() bool {
			r, err := second.Claim(t.Context(), serverClaim("settled"))
			if err == nil && string(r.Result.Body) != "made" {
				t.Fatalf("the repeat got %+v", r)
			}
			return err == nil
		})
		if err := second.Renew(t.Context(), hold, time.Minute, nil); err != nil {
			t.Error(err)
		}
	})
}
