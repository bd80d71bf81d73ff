//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Pair is a primary and the server that takes its place in a failover: a standby of
// PostgreSQL, or a replica of MariaDB.
type Pair struct {
	Primary, Replica *Server

	link      *CuttingProxy // between the two servers
	replicate func(address string) (*Server, error)
	connected func(ctx context.Context) error // nil once the primary sends its commits to the replica
	promote   func() error
}

// NewStandbyPair starts the standby of a PostgreSQL server, which becomes the primary. names is
// its synchronous_standby_names: '*' makes commits wait for the standby. Close ends both.
func NewStandbyPair(s *Server, names string) (*Pair, error) {
	p := &Pair{Primary: s}
	p.replicate = func(address string) (*Server, error) { return NewStandby(p.Primary, address) }
	p.promote = func() error { return p.Replica.Promote() }
	p.connected = func(ctx context.Context) error {
		var n int
		err := p.Primary.Admin.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("it has no standby")
		}
		return err
	}
	_, err := s.Admin.Exec("ALTER SYSTEM SET synchronous_standby_names = '" + names + "'")
	if err == nil {
		err = s.Restart() // so that commits wait for a standby from now on
	}
	return p.startReplica(err)
}

// NewReplicaPair starts the replica of a MariaDB server, which is of the kind Replicated and
// becomes the primary. With semiSync, commits wait for the replica. Close ends both.
func NewReplicaPair(s *Server, shared string, semiSync bool) (*Pair, error) {
	p := &Pair{Primary: s}
	p.replicate = func(address string) (*Server, error) { return NewReplica(p.Primary, address, shared) }
	p.promote = func() error { return p.Replica.BecomePrimary(semiSync) }
	p.connected = func(ctx context.Context) error {
		is, err := p.Replica.Replication()
		if err != nil {
			return err
		}
		if is["Slave_IO_Running"] != "Yes" {
			return errors.New(is["Last_IO_Error"])
		}
		var name string
		var clients int
		err = p.Primary.Admin.QueryRowContext(ctx, "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'").Scan(&name, &clients)
		if err == nil && semiSync && clients == 0 {
			err = errors.New("its commits do not wait for a replica")
		}
		return err
	}
	return p.startReplica(s.BecomePrimary(semiSync))
}

// startReplica starts the first replica, unless there is an error.
func (p *Pair) startReplica(err error) (*Pair, error) {
	if err == nil {
		err = p.Follow()
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Follow starts a replica, and returns when it follows the primary.
func (p *Pair) Follow() (err error) {
	if p.link != nil {
		p.link.Close()
	}
	if p.link, err = NewCuttingProxy(p.Primary.Address()); err != nil {
		return err
	}
	if p.Replica, err = p.replicate(p.link.Address()); err != nil {
		return err
	}
	return p.await()
}

// CutOff drops all bytes between the primary and the replica until Rejoin is called.
func (p *Pair) CutOff() { p.link.SetTarget("") }

// Rejoin connects the replica again, and returns when it follows the primary.
func (p *Pair) Rejoin() error {
	p.link.SetTarget(p.Primary.Address())
	return p.await()
}

func (p *Pair) await() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for ctx.Err() == nil {
		if err = p.connected(ctx); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the replica of %s does not follow the primary: %w", p.Primary.Kind.Name, err)
}

// Promote kills the primary for good, and returns when the replica has taken its place. Then
// there is no replica until Follow.
func (p *Pair) Promote() error {
	p.Primary.Kill()
	if err := p.promote(); err != nil {
		return err
	}
	former := p.Primary
	p.Primary, p.Replica = p.Replica, nil
	return former.Close()
}

// Close ends both servers.
func (p *Pair) Close() (err error) {
	if p.link != nil {
		p.link.Close()
	}
	for _, s := range []*Server{p.Primary, p.Replica} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
