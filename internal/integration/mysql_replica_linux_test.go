package integration

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A replica that lags has no trace of a transaction that was committed, and none has the lock of
// one that has not ended.
func TestMariaDB_AReplicaIsNotBelievedThatATransactionWasNotCommitted(t *testing.T) {
	t.Parallel()
	primary := newOwnServer(t, faults.Replicated)
	d := primary.newDatabase(t)
	d.migrated(t)
	execute(t, primary.admin, "CREATE USER app@localhost", "GRANT ALL ON *.* TO app@localhost", "REVOKE SUPER, READ ONLY ADMIN ON *.* FROM app@localhost")
	replica, err := faults.NewReplica(primary.Server, primary.Address(), sharedDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := replica.Close(); err != nil {
			t.Error(err)
		}
	})
	var position string
	if err := primary.admin.QueryRow("SELECT @@gtid_binlog_pos").Scan(&position); err != nil {
		t.Fatal(err)
	}
	var reached int // 0: yes, -1: not in time
	if err := replica.Admin.QueryRow("SELECT MASTER_GTID_WAIT(?, 300)", position).Scan(&reached); err != nil || reached != 0 {
		t.Fatalf("the replica does not have all of %s: %d, %v", position, reached, err)
	}
	execute(t, replica.Admin, "STOP SLAVE SQL_THREAD", "SET GLOBAL read_only = 1")

	c := newBalancer(t, primary)
	pool := openPool(t, d.driver, asApp(strings.Replace(d.dsn, primary.Address(), c.Addr().String(), 1)))
	pool.SetMaxIdleConns(-1) // each step opens a connection
	s := openOn(t, pool)
	notBelieved(t, c, "of the end of a transaction", s, replica.Address())
	notBelieved(t, c, "of the record", s, primary.Address(), replica.Address())
	runsNothing(t, c, "sqlstore", s, replica.Address())
}

// asApp is the data source name of root as that of a user without the right to write to a server
// whose read_only is on.
func asApp(dsn string) string { return strings.Replace(dsn, "root@", "app@", 1) }

// With read_only, the users with that right still write.
func TestMariaDB_AFunctionRunsOnlyInATransactionThatCanWrite(t *testing.T) {
	t.Parallel()
	server := newOwnServer(t, faults.MariaDB)
	d := server.newDatabase(t)
	d.migrated(t)
	execute(t, server.admin, "CREATE USER app@localhost", "GRANT ALL ON *.* TO app@localhost", "REVOKE SUPER, READ ONLY ADMIN ON *.* FROM app@localhost")
	root, app := d.pool(t), openPool(t, d.driver, asApp(d.dsn))
	stores := map[string]onlyonce.TxStore[*sql.Tx]{"root": openOn(t, root), "app": openOn(t, app)}
	for _, db := range []*sql.DB{root, app} {
		db.SetMaxIdleConns(-1) // new connections have the server's settings
	}
	for _, c := range []struct {
		setting string
		writes  map[string]bool
	}{
		{"read_only = 0", map[string]bool{"root": true, "app": true}},
		{"read_only = 1", map[string]bool{"root": true}},
		{"tx_read_only = 1", map[string]bool{}},
	} {
		execute(t, server.admin, "SET GLOBAL read_only = 0, GLOBAL tx_read_only = 0", "SET GLOBAL "+c.setting)
		for user, s := range stores {
			ran := false
			r, err := s.RunTx(t.Context(), serverClaim(c.setting+" "+user), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				ran = true
				_, err := tx.ExecContext(ctx, "INSERT INTO paid VALUES ('c', 't')")
				return done("made"), err
			})
			if c.writes[user] {
				if err != nil || r.State != onlyonce.StateCompleted {
					t.Errorf("%s with %s: RunTx returns %+v, %v", user, c.setting, r, err)
				}
				continue
			}
			if ran {
				t.Errorf("%s with %s: the function ran", user, c.setting)
			}
			if !errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("%s with %s: RunTx returns %v", user, c.setting, err)
			}
		}
	}
}
