//go:build linux

package faults

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Replicated is a MariaDB server that is set up for a failover to a replica. Semi-synchronous
// replication is off until BecomePrimary turns it on. Commits then wait for a replica without a
// time limit.
var Replicated = MariaDB.With("--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW", "--log-slave-updates",
	"--rpl-semi-sync-master-timeout=4294967295", "--rpl-semi-sync-slave-enabled=1")

// NewReplica starts a replica of a MariaDB server, which it reaches at an address. The replica
// receives everything that was ever written to that server. Close ends it.
func NewReplica(primary *Server, address, shared string) (*Server, error) {
	s := &Server{Kind: Replicated, programs: primary.programs}
	var err error
	if s.Dir, err = os.MkdirTemp("", "onlyonce"); err != nil {
		return nil, err
	}
	err = s.open(shared)
	if err == nil {
		host, port, _ := net.SplitHostPort(address)
		_, err = s.Admin.Exec(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos", host, port))
	}
	if err == nil {
		_, err = s.Admin.Exec("START SLAVE")
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// BecomePrimary makes a replica, or a server of kind Replicated, a primary, once it has executed
// its relay log. With semiSync, its commits wait for a replica from then on.
func (s *Server) BecomePrimary(semiSync bool) error {
	if err := s.awaitRelayLog(); err != nil {
		return err
	}
	statements := []string{"STOP SLAVE", "RESET SLAVE ALL"}
	if semiSync {
		s.Kind = s.Kind.With("--rpl-semi-sync-master-enabled=1")
		statements = append(statements, "SET GLOBAL rpl_semi_sync_master_enabled = 1")
	}
	for _, statement := range statements {
		if _, err := s.Admin.Exec(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// awaitRelayLog stops a replica from receiving, and waits until it has executed its relay log,
// as long as it makes progress. A new replica executes everything that was ever written.
func (s *Server) awaitRelayLog() error {
	if _, err := s.Admin.Exec("STOP SLAVE IO_THREAD"); err != nil {
		return err
	}
	var was string
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		is, err := s.Replication()
		position := is["Relay_Log_File"] + " " + is["Relay_Log_Pos"]
		switch state := is["Slave_SQL_Running_State"]; {
		case err != nil:
			return err
		case len(is) == 0, state == "Slave has read all relay log; waiting for more updates":
			return nil
		case position != was:
			end, was = time.Now().Add(timeout), position
		case time.Now().After(end):
			return fmt.Errorf("the replica has not executed its relay log: %s: %s", state, is["Last_SQL_Error"])
		}
	}
}

// Replication returns the server's status as a replica. It is empty if the server is not a
// replica.
func (s *Server) Replication() (map[string]string, error) {
	rows, err := s.Admin.Query("SHOW SLAVE STATUS")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil || !rows.Next() {
		return nil, errors.Join(err, rows.Err())
	}
	values, into := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	is := make(map[string]string)
	for i, name := range names {
		is[name] = values[i].String
	}
	return is, rows.Close()
}
