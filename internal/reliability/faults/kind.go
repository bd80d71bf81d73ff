//go:build linux

package faults

import (
	"fmt"
	"path/filepath"
	"sync"
)

// A Kind describes how the server of one database is set up, started and queried.
type Kind struct {
	Name   string
	Driver string
	DSN    func(port, database string) string

	programs  map[string]string // patterns of their paths
	user      string            // runs the server if the caller is root
	setups    *sync.Mutex       // held during setup
	setup     func(s *Server) []string
	run       func(s *Server) []string
	listKills string // a query for the statements that kill all other connections
}

// With returns the kind with additional arguments.
func (k *Kind) With(args ...string) *Kind {
	other := *k
	other.run = func(s *Server) []string { return append(k.run(s), args...) }
	return &other
}

// PostgreSQL is the newest installed version of Debian's packages.
var PostgreSQL = &Kind{
	Name: "PostgreSQL's server",
	programs: map[string]string{
		"initdb": "/usr/lib/postgresql/*/bin/initdb", "postgres": "/usr/lib/postgresql/*/bin/postgres", "basebackup": "/usr/lib/postgresql/*/bin/pg_basebackup",
	},
	user:   "postgres",
	setups: new(sync.Mutex),
	setup: func(s *Server) []string {
		return []string{s.programs["initdb"], "-D", s.Data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"}
	},
	run: func(s *Server) []string {
		return []string{
			s.programs["postgres"], "-D", s.Data(), "-h", "127.0.0.1", "-p", s.Port, "-k", s.Dir,
			"-c", "fsync=on", "-c", "full_page_writes=on", "-c", "synchronous_commit=on", "-c", "shared_buffers=32MB", "-c", "max_connections=200",
		}
	},
	Driver: "pgx",
	DSN: func(port, database string) string {
		if database == "" {
			database = "postgres"
		}
		return fmt.Sprintf("postgres://postgres@127.0.0.1:%s/%s?sslmode=disable", port, database)
	},
	listKills: `SELECT 'SELECT pg_terminate_backend(' || pid || ')' FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
}

// MariaDB is the installed MariaDB server.
var MariaDB = &Kind{
	Name:     "MariaDB's server",
	programs: map[string]string{"install": "/usr/bin/mariadb-install-db", "server": "/usr/sbin/mariadbd"},
	user:     "mysql",
	setups:   new(sync.Mutex),
	setup: func(s *Server) []string {
		return []string{s.programs["install"], "--no-defaults", "--datadir=" + s.Data(), "--tmpdir=" + s.Data(), "--auth-root-authentication-method=normal", "--skip-test-db"}
	},
	run: func(s *Server) []string {
		return []string{
			s.programs["server"], "--no-defaults", "--datadir=" + s.Data(), "--bind-address=127.0.0.1", "--port=" + s.Port,
			"--tmpdir=" + s.Dir, "--socket=" + filepath.Join(s.Dir, "socket"), "--pid-file=" + filepath.Join(s.Dir, "pid"),
			"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=1", "--max-connections=200",
			"--server-id=" + s.Port,
		}
	},
	Driver: "mysql",
	DSN: func(port, database string) string {
		return fmt.Sprintf("root@tcp(127.0.0.1:%s)/%s", port, database)
	},
	listKills: `SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()`,
}

// findPrograms returns the path of the newest version of each program, or nil if one is missing.
func (k *Kind) findPrograms() map[string]string {
	programs := make(map[string]string)
	for name, pattern := range k.programs {
		paths, _ := filepath.Glob(pattern)
		if len(paths) == 0 {
			return nil
		}
		programs[name] = paths[len(paths)-1]
	}
	return programs
}
