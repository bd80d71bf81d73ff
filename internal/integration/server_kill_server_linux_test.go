package integration

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// An ownServer is a database server of a test's own, which may be killed and
// started again on the same data.
type ownServer struct {
	*faults.Server
	admin *sql.DB
}

// newOwnServer starts a server, which is killed at the end.
func newOwnServer(t *testing.T, kind *faults.Kind) *ownServer {
	t.Helper()
	s, err := faults.New(kind, sharedDir(t))
	if errors.Is(err, faults.ErrMissing) {
		needs.Service(t, kind.Name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &ownServer{s, s.Admin}
}

// start starts the server and waits until it responds.
func (s *ownServer) start(t *testing.T) {
	t.Helper()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}

func (s *ownServer) restart(t *testing.T) {
	t.Helper()
	s.Kill()
	s.start(t)
}

// cut ends the connections of all others.
func (s *ownServer) cut(t *testing.T) {
	t.Helper()
	if _, err := s.KillConnections(func() bool { return true }); err != nil {
		t.Fatal(err)
	}
}

func newCutter(t *testing.T, s *ownServer) *faults.CuttingProxy {
	t.Helper()
	c, err := faults.NewCuttingProxy(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
