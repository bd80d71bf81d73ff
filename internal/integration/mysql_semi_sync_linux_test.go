package integration

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// semiSync is a MariaDB server that is set up for a failover to a semi-synchronous replica.
func semiSync(waitPoint string) *faults.Kind {
	return faults.MariaDB.With("--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW",
		"--rpl-semi-sync-master-timeout=4294967295", "--rpl-semi-sync-master-wait-point="+waitPoint)
}

// A replicaGate makes the commits of a server wait, while it is shut, for a replica that does
// not come.
type replicaGate struct {
	t *testing.T
	s *ownServer
}

func (g replicaGate) set(enabled string) {
	g.t.Helper()
	if _, err := g.s.admin.Exec("SET GLOBAL rpl_semi_sync_master_enabled = " + enabled); err != nil {
		g.t.Fatal(err)
	}
}

// waiting returns how many statements wait, whose text is like a pattern.
func (g replicaGate) waiting(pattern string) (n int) {
	g.t.Helper()
	if err := g.s.admin.QueryRow("SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%' AND info LIKE ?", pattern).Scan(&n); err != nil {
		g.t.Fatal(err)
	}
	return n
}

// stateOf returns the state of the only record.
func stateOf(t *testing.T, db *sql.DB) (state string) {
	t.Helper()
	if err := db.QueryRow("SELECT state FROM onlyonce_records").Scan(&state); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return state
}

// MariaDB shows a commit that no replica has in three cases.
func TestMariaDB_NoResponseIsGivenBeforeItIsOnTheSemiSynchronousReplica(t *testing.T) {
	for _, c := range []struct {
		name, waitPoint string
		show            func(t *testing.T, g replicaGate)
	}{
		{"with AFTER_COMMIT", "AFTER_COMMIT", func(*testing.T, replicaGate) {}},
		{"when the connection that waits is killed", "AFTER_SYNC", func(t *testing.T, g replicaGate) { g.s.cut(t) }},
		{"when the server starts again with what it had in its binary log", "AFTER_SYNC", func(t *testing.T, g replicaGate) {
			g.s.Kill()
			g.s.Kind = g.s.Kind.With("--rpl-semi-sync-master-enabled=1")
			g.s.start(t)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := newOwnServer(t, semiSync(c.waitPoint))
			gate := replicaGate{t, server}
			d := server.newDatabase(t)
			db := d.migrated(t)
			s, other := openOn(t, d.pool(t)), openOn(t, d.pool(t))
			claim := serverClaim("k")
			r, err := s.Claim(t.Context(), claim)
			if err != nil {
				t.Fatal(err)
			}
			gate.set("ON")
			settled := make(chan error, 1)
			go func() {
				settled <- s.Settle(t.Context(), onlyonce.Hold{ID: claim.ID, Owner: claim.Owner, Fence: r.Fence}, done("made"))
			}()
			eventually(t, "the settlement waits for a replica", func() bool { return gate.waiting("UPDATE %onlyonce_records%") > 0 })
			c.show(t, gate)
			eventually(t, "the settlement is seen", func() bool { return stateOf(t, db) == "completed" })
			replays := func(s *sqlstore.Store, when string) {
				t.Helper()
				for name, got := range ask(t, s, claim) {
					if a := <-got; a.err != nil || string(a.record.Result.Body) != "made" {
						t.Errorf("%s, %s got %+v, %v", when, name, a.record, a.err)
					}
				}
			}
			answers := ask(t, other, claim)
			eventually(t, "all callers wait for a replica", func() bool {
				for name, got := range answers {
					if len(got) > 0 {
						a := <-got
						t.Fatalf("%s got %+v, %v while no replica had it", name, a.record, a.err)
					}
				}
				return gate.waiting("INSERT INTO %onlyonce_flush%") > 0
			})
			gate.set("OFF")
			<-settled
			for name, got := range answers {
				if a := <-got; a.err != nil || string(a.record.Result.Body) != "made" {
					t.Errorf("%s got %+v, %v", name, a.record, a.err)
				}
			}
			gate.set("ON")
			replays(other, "known to be on a replica")
			gate.set("OFF")
			replays(openOn(t, d.pool(t)), "without semi-synchronous replication")
		})
	}
}
