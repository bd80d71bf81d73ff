//go:build linux

package faults

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// NewStandby starts a hot standby of a PostgreSQL server, which it reaches at an address.
// Close ends it.
func NewStandby(primary *Server, address string) (*Server, error) {
	dir, err := os.MkdirTemp("", "onlyonce")
	if err != nil {
		return nil, err
	}
	s := &Server{Kind: primary.Kind, programs: primary.programs, Dir: dir}
	if err := s.follow(address); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) follow(address string) (err error) {
	s.Port = testserver.FreePort()
	if err := s.chownDir(); err != nil {
		return err
	}
	source := fmt.Sprintf("postgres://postgres@%s?sslmode=disable", address)
	if out, err := s.command([]string{s.programs["basebackup"], "-d", source, "-D", s.Data(), "-X", "stream", "-c", "fast", "-R", "--no-sync"}).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the primary's data: %w\n%s", err, out)
	}
	if s.Admin, err = Open(s.Kind.Driver, s.Kind.DSN(s.Port, "")); err != nil {
		return err
	}
	return s.Start()
}

// Promote makes a standby a primary, and returns when it is one.
func (s *Server) Promote() error {
	var done bool
	err := s.Admin.QueryRow("SELECT pg_promote(true, $1)", int(timeout/time.Second)).Scan(&done)
	if err == nil && !done {
		err = errors.New("the standby was not promoted")
	}
	return err
}
