package integration

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// asUser returns a command that a user other than root runs if we are root, for
// some servers reject it.
func asUser(user, name string, args ...string) *exec.Cmd {
	if os.Getuid() != 0 {
		return exec.Command(name, args...)
	}
	return exec.Command("setpriv", append([]string{"--reuid=" + user, "--regid=" + user, "--clear-groups", name}, args...)...)
}

// newPgBouncer starts PgBouncer in transaction mode before a schema, and returns
// how to reach it.
func newPgBouncer(t *testing.T, schema postgresSchema) string {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		bin = "/usr/sbin/pgbouncer"
		_, err = os.Stat(bin)
	}
	needs.Service(t, "PgBouncer", err)
	u, err := url.Parse(schema.dsn)
	if err != nil {
		t.Fatal(err)
	}
	port, dir := testserver.FreePort(), t.TempDir()
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
records = host=%s port=%s dbname=%s user=%s connect_query='SET search_path = %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
auth_type = any
pool_mode = transaction
default_pool_size = 4
unix_socket_dir =
`, u.Hostname(), u.Port(), u.Path[1:], u.User.Username(), schema.name, port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil { // another user reads it
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { // as above
			t.Fatal(err)
		}
	}
	cmd := asUser("postgres", bin, config)
	needs.Service(t, "PgBouncer", cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return "postgres://any@127.0.0.1:" + port + "/records?sslmode=disable"
}

// throughPgBouncer opens a pool on a schema with the store's tables and one of the
// caller's.
func throughPgBouncer(t *testing.T, mode string) *sql.DB {
	t.Helper()
	schema := newPostgresSchema(t)
	_, direct := schema.open(t)
	if _, err := direct.Exec("CREATE TABLE own (name bytea NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", newPgBouncer(t, schema)+"&default_query_exec_mode="+mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	eventually(t, "PgBouncer answers", func() bool { return db.Ping() == nil })
	return db
}

func TestPgBouncer_InTransactionModeKeepsTheRules(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := throughPgBouncer(t, mode)
			storetest.Run(t, func(t *testing.T) onlyonce.Store {
				emptied(t, db, "onlyonce_records")
				return openOn(t, db)
			})
			storetest.RunTx(t, func(t *testing.T) storetest.Tx[*sql.Tx] {
				emptied(t, db, "onlyonce_records", "own")
				return ownRows(openOn(t, db), db, "$1")
			})
			s := openOn(t, db)
			crowd(many, func(i int) {
				c := serverClaim(fmt.Sprint("crowd ", i))
				r, err := s.Claim(t.Context(), c)
				if err == nil {
					err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
				}
				if err != nil || r.Owner != c.Owner {
					t.Errorf("claim and settle got %+v and error %v", r, err)
				}
			})
		})
	}
}
