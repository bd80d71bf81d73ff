package integration

import (
	"database/sql"
	"testing"
)

// naiveStatements prepares two statements, each committed by itself, over a pool
// of 64 connections, like a competent hand-written implementation.
func naiveStatements(b *testing.B, db *sql.DB, table, claim, settle string) (c, s *sql.Stmt) {
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	connect(b, db, 64)
	if _, err := db.Exec(table); err != nil {
		b.Fatal(err)
	}
	prepare := func(query string) *sql.Stmt {
		st, err := db.Prepare(query)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { st.Close() })
		return st
	}
	return prepare(claim), prepare(settle)
}

// connect opens connections that stay in the pool, so that no benchmark measures how long it takes to
// connect.
func connect(b *testing.B, db *sql.DB, n int) {
	b.Helper()
	for range n {
		conn, err := db.Conn(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
	}
}

func BenchmarkMySQL(b *testing.B) {
	d := newMySQLDatabase(b)
	s, _ := d.open(b)
	claim, settle := naiveStatements(b, d.pool(b), `CREATE TABLE naive_records (
		id BINARY(32) PRIMARY KEY, tenant VARBINARY(255) NOT NULL, operation VARBINARY(255) NOT NULL, idem_key VARBINARY(255) NOT NULL, fingerprint VARBINARY(32),
		state VARBINARY(16) NOT NULL, owner BINARY(16) NOT NULL, attempt INT NOT NULL, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, created_at BIGINT NOT NULL,
		settled_at BIGINT, expires_at BIGINT, status_code INT, response_header BLOB, response_body LONGBLOB,
		KEY (created_at), KEY (expires_at)) ENGINE = InnoDB`, `
INSERT INTO naive_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, created_at)
VALUES (?, ?, ?, ?, ?, 'processing', ?, 1, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id`, `
UPDATE naive_records SET state = 'completed', status_code = ?, response_header = ?, response_body = ?, settled_at = ?, expires_at = ?
WHERE id = ? AND owner = ? AND state = 'processing'`)
	claimsAndSettles(b, s, claim, settle)
}

func BenchmarkPostgres(b *testing.B) {
	schema := newPostgresSchema(b)
	s, _ := schema.open(b)
	claim, settle := naiveStatements(b, schema.pool(b), `CREATE TABLE naive_records (
		id bytea PRIMARY KEY, tenant text NOT NULL, operation text NOT NULL, idem_key text NOT NULL, fingerprint bytea,
		state text NOT NULL, owner bytea NOT NULL, attempt integer NOT NULL, fence bigint NOT NULL, lease_until bigint NOT NULL, created_at bigint NOT NULL,
		settled_at bigint, expires_at bigint, status_code integer, response_header text, response_body bytea) WITH (fillfactor = 80);
		CREATE INDEX ON naive_records (created_at); CREATE INDEX ON naive_records (expires_at) WHERE expires_at IS NOT NULL`, `
INSERT INTO naive_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, created_at)
VALUES ($1, $2, $3, $4, $5, 'processing', $6, 1, $7, $8, $9) ON CONFLICT (id) DO NOTHING`, `
UPDATE naive_records SET state = 'completed', status_code = $1, response_header = $2, response_body = $3, settled_at = $4, expires_at = $5
WHERE id = $6 AND owner = $7 AND state = 'processing'`)
	claimsAndSettles(b, s, claim, settle)
}
