package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// onEmptyDatabases runs a test on every engine. Each database is empty.
func onEmptyDatabases(t *testing.T, f func(t *testing.T, engine string, newDB func() *sql.DB)) {
	for engine, newDB := range map[string]func(t *testing.T) *sql.DB{
		"sqlite":   func(t *testing.T) *sql.DB { return openSQLiteDB(t, filepath.Join(t.TempDir(), "records.db")) },
		"postgres": func(t *testing.T) *sql.DB { return newPostgresSchema(t).pool(t) },
		"mysql":    func(t *testing.T) *sql.DB { return newMySQLDatabase(t).pool(t) },
	} {
		t.Run(engine, func(t *testing.T) { f(t, engine, func() *sql.DB { return newDB(t) }) })
	}
}

// relations are the tables and views of an engine's database.
var relations = map[string]string{
	"sqlite":   "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name",
	"postgres": "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY relname",
	"mysql":    "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name",
}

func relationsOf(t *testing.T, engine string, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.Query(relations[engine])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// runMigrations runs the first migrations of an engine, as another tool does.
func runMigrations(t *testing.T, engine string, db *sql.DB, upTo int) {
	t.Helper()
	for _, m := range migrationsOf(t, engine)[:upTo] {
		for _, statement := range statementsOf(engine, m.SQL) {
			if _, err := db.Exec(statement); err != nil {
				t.Fatalf("version %d: %v\n%s", m.Version, err, statement)
			}
		}
	}
}

func migrationsOf(t *testing.T, engine string) []sqlstore.Migration {
	t.Helper()
	list, err := sqlstore.Migrations(engine)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// statementsOf splits a migration for MySQL, whose driver takes one statement.
func statementsOf(engine, text string) []string {
	if engine != "mysql" {
		return []string{text}
	}
	return slices.DeleteFunc(strings.Split(text, ";\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
}

func TestMigrate_SaysWhatIsInItsWayAndMakesNothing(t *testing.T) {
	needs.Time(t)
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		for _, c := range []struct{ name, create, drop string }{
			{"onlyonce_records", "CREATE TABLE onlyonce_records (id INT)", "DROP TABLE onlyonce_records"},
			{"onlyonce_fence", "CREATE TABLE onlyonce_fence (floor INT)", "DROP TABLE onlyonce_fence"},
			{"onlyonce_readable", "CREATE TABLE onlyonce_readable (id INT)", "DROP TABLE onlyonce_readable"},
			{"onlyonce_outbox", "CREATE VIEW onlyonce_outbox AS SELECT 1 AS seq", "DROP VIEW onlyonce_outbox"},
		} {
			t.Run(c.create, func(t *testing.T) {
				db := newDB()
				if _, err := db.Exec(c.create); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := sqlstore.Migrate(t.Context(), db); err == nil || !strings.Contains(err.Error(), "rename or drop it") || !strings.Contains(err.Error(), c.name) {
						t.Errorf("migrate returned %v", err)
					}
				}
				if got := relationsOf(t, engine, db); !slices.Equal(got, []string{c.name}) {
					t.Errorf("the database has %v", got)
				}
				if _, err := db.Exec(c.drop); err != nil {
					t.Fatal(err)
				}
				openMigrated(t, db)
			})
		}
	})
}

func TestMigrate_ADatabaseOfAnOlderVersionIsMigratedBeforeItIsUsed(t *testing.T) {
	needs.Time(t)
	id := onlyonce.ID{Operation: "op", Key: "k"}
	hash := id.Hash()
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		list := migrationsOf(t, engine)
		for version := range len(list) {
			t.Run(fmt.Sprint(version), func(t *testing.T) {
				db := newDB()
				runMigrations(t, engine, db, version)
				before := relationsOf(t, engine, db)
				if version > 0 {
					if _, err := db.Exec(fmt.Sprintf(`INSERT INTO onlyonce_records (id, tenant, operation, idem_key, state, owner, attempt, created_at, fence, lease_until, settled_at, status_code)
						VALUES (%s, '', 'op', 'k', 'completed', %s, 1, 7, 7, 0, 8, 201)`, literal(engine, hash[:]), literal(engine, []byte("owner")))); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := sqlstore.SchemaVersion(t.Context(), db); err != nil || got != version {
					t.Errorf("the schema's version is %d, with error %v", got, err)
				}
				want := fmt.Sprintf("version %d, needed %d: run Migrate, or onlyonce migrate", version, len(list))
				if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{}); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("open returned %v", err)
				}
				if got := relationsOf(t, engine, db); !slices.Equal(got, before) {
					t.Errorf("the database had %v and has %v", before, got)
				}
				s, _ := openMigrated(t, db)
				if version == 0 {
					return
				}
				if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted || r.Result.Status != 201 || r.Fence != 7 {
					t.Errorf("lookup got %+v and error %v", r, err)
				}
				c := onlyonce.Claim{ID: id, Owner: owner(), SkipFingerprint: true, Lease: time.Minute}
				if r, err := s.Claim(t.Context(), c); err != nil || r.State != onlyonce.StateCompleted {
					t.Errorf("a claim got %+v and error %v", r, err)
				}
			})
		}
	})
}

// literal is a value of bytes in an engine's SQL.
func literal(engine string, b []byte) string {
	if engine == "postgres" {
		return fmt.Sprintf(`'\x%x'`, b)
	}
	return fmt.Sprintf("X'%x'", b)
}

func TestMigrate_ASchemaOfTheFutureIsLeftAlone(t *testing.T) {
	needs.Time(t)
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		for _, upTo := range []int{len(migrationsOf(t, engine)), 1} { // with any number of migrations
			db := newDB()
			runMigrations(t, engine, db, upTo)
			if _, err := db.Exec("INSERT INTO onlyonce_schema (version) VALUES (99)"); err != nil {
				t.Fatal(err)
			}
			before := relationsOf(t, engine, db)
			_, opened := sqlstore.Open(t.Context(), db, sqlstore.Config{})
			for name, err := range map[string]error{"open": opened, "migrate": sqlstore.Migrate(t.Context(), db)} {
				if err == nil || !strings.Contains(err.Error(), "version 99 is newer than") || !strings.Contains(err.Error(), "run a newer program") {
					t.Errorf("%s returned %v", name, err)
				}
			}
			if got := relationsOf(t, engine, db); !slices.Equal(got, before) {
				t.Errorf("the database had %v and has %v", before, got)
			}
		}
	})
}

// MySQL commits each statement of a migration by itself.
func TestMigrate_AMigrationOfMySQLThatWasBrokenOffIsFinished(t *testing.T) {
	needs.Time(t)
	var all []string
	for _, m := range migrationsOf(t, "mysql") {
		all = append(all, statementsOf("mysql", m.SQL)...)
	}
	for n, last := range all {
		if strings.Contains(last, "PREPARE ") || strings.Contains(last, "SET @") {
			continue // which left nothing in the database
		}
		db := newMySQLDatabase(t).pool(t)
		db.SetMaxOpenConns(1) // of a session with its variables
		for _, statement := range all[:n+1] {
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(errors.Join(err, errors.New(statement)))
			}
		}
		db.SetMaxOpenConns(0)
		openMigrated(t, db)
	}
}

// A session remembers that it has found no table of a name, also while it waits for the other process.
func TestMigrate_PostgreSQLSeesWhatAnotherProcessHasMigratedMeanwhile(t *testing.T) {
	schema := newPostgresSchema(t)
	db, h := hookedPostgres(t, schema)
	db.SetMaxOpenConns(1)
	version, err := sqlstore.SchemaVersion(t.Context(), db)
	if err != nil || version != 0 {
		t.Fatalf("the schema's version is %d, with error %v", version, err)
	}
	var session int
	if err := db.QueryRow("SELECT pg_backend_pid()").Scan(&session); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	h.once("pg_advisory_xact_lock", func() {
		sent := h.changes()
		lock := sent[len(sent)-1].text
		other := schema.pool(t)
		tx, err := other.Begin()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := tx.Exec(lock); err != nil {
			t.Error(err)
		}
		go func() { ended <- migrateWhileWaiting(t, other, tx, session) }()
	})
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Errorf("migrating after another process returned %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// migrateWhileWaiting runs the migrations in a transaction once a session waits for its lock.
func migrateWhileWaiting(t *testing.T, db *sql.DB, tx *sql.Tx, session int) error {
	for waits := false; !waits; {
		if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND NOT granted)", session).Scan(&waits); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	for _, m := range migrationsOf(t, "postgres") {
		if _, err := tx.Exec(m.SQL); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// A busyMigration is one of PostgreSQL that waits for a transaction which has written a row.
type busyMigration struct {
	*testing.T
	schema postgresSchema
	db     *sql.DB
	first  *sql.Tx
	ended  chan error
}

func newBusyMigration(t *testing.T, version int) *busyMigration {
	schema := newPostgresSchema(t)
	db := schema.pool(t)
	runMigrations(t, "postgres", db, version)
	return &busyMigration{T: t, schema: schema, db: db, ended: make(chan error, 2)}
}

// patient returns a transaction that the server does not end to resolve a deadlock: the other one is ended.
func (m *busyMigration) patient(statement string) *sql.Tx {
	m.Helper()
	tx, err := m.schema.pool(m.T, "deadlock_timeout=1h").Begin()
	if err == nil {
		_, err = tx.Exec(statement)
	}
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// begin starts the migration once a transaction has written a row.
func (m *busyMigration) begin(write string) {
	m.Helper()
	m.first = m.patient(write)
	db := m.schema.pool(m.T, "deadlock_timeout=100ms")
	go func() { m.ended <- sqlstore.Migrate(context.Background(), db) }()
	m.waiting(1)
}

func (m *busyMigration) waiting(want int) {
	m.Helper()
	eventually(m.T, fmt.Sprint(want, " sessions wait"), func() bool {
		var n int
		if err := m.db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation IN ('onlyonce_records'::regclass, 'onlyonce_outbox'::regclass)").Scan(&n); err != nil {
			m.Fatal(err)
		}
		return n == want
	})
}

// end wants the migration and the other transaction to succeed.
func (m *busyMigration) end() {
	m.Helper()
	m.waiting(2)
	if err := m.first.Commit(); err != nil {
		m.Error(err)
	}
	for range cap(m.ended) {
		if err := <-m.ended; err != nil {
			m.Error(err)
		}
	}
	openOn(m.T, m.db)
}

func insertRecord(key string) string {
	return fmt.Sprintf(`INSERT INTO onlyonce_records (id, tenant, operation, idem_key, state, owner, attempt, created_at, fence, lease_until)
		VALUES ('\x%x', '', 'op', '%s', 'completed', '\x00', 1, 7, 7, 0)`, key, key)
}

const insertMessage = "INSERT INTO onlyonce_outbox (id, topic, ordering_key, tenant, headers, payload, created_at) VALUES ('1', 'orders', '', '', '{}', '', 7)"

// A migration waits for every transaction that has read a table, and transactions that have done so, as RunTx
// does, wait for it when they write.
func TestMigrate_PostgreSQLMigratesBetweenTransactionsThatReadAndThenWrite(t *testing.T) {
	for name, c := range map[string]struct {
		version     int
		first, next string
	}{
		"records": {9, insertRecord("a"), insertRecord("b")},
		"outbox":  {8, insertMessage, insertMessage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newBusyMigration(t, c.version)
			m.begin(c.first)
			db := m.schema.pool(t, "deadlock_timeout=1h")
			go func() {
				tx, err := db.Begin()
				if err == nil {
					_, err = tx.Exec("SELECT count(*) FROM onlyonce_records")
				}
				if err == nil {
					_, err = tx.Exec(c.next)
				}
				if err == nil {
					err = tx.Commit()
				}
				m.ended <- err
			}()
			m.end()
		})
	}
}

// A transaction of the caller's may use the tables in any order.
func TestMigrate_AMigrationOfPostgreSQLThatADeadlockHasEndedBeginsAgain(t *testing.T) {
	t.Parallel()
	m := newBusyMigration(t, 8)
	other := m.patient(insertMessage)
	m.begin(insertRecord("a"))
	go func() {
		_, err := other.Exec(insertRecord("b"))
		m.ended <- errors.Join(err, other.Commit())
	}()
	m.end()
}

// Callers may always use the tables in an order that leads to a deadlock. The trigger stands for all of them.
func TestMigrate_AMigrationOfPostgreSQLThatDeadlocksEveryTimeEnds(t *testing.T) {
	t.Parallel()
	m := newBusyMigration(t, 9)
	execute(t, m.db, `CREATE SEQUENCE tries;
		CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('tries'); RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END $$;
		CREATE TRIGGER deadlock BEFORE INSERT ON onlyonce_schema FOR EACH ROW EXECUTE FUNCTION deadlock()`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it would not end otherwise
	defer cancel()
	err := sqlstore.Migrate(ctx, m.db)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "deadlock detected") || !strings.Contains(err.Error(), "end them") {
		t.Errorf("migrate returned %v", err)
	}
	var tries int
	if err := m.db.QueryRow("SELECT last_value FROM tries").Scan(&tries); err != nil || tries != 10 {
		t.Errorf("it was tried %d times, %v", tries, err)
	}
}
