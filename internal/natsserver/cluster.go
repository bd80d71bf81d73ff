package natsserver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// A Cluster is some servers that know each other, or one.
type Cluster []*Server

// StartCluster starts so many servers. They need not have found each other yet.
func StartCluster(size int) (c Cluster, err error) {
	for range 5 { // another process may take a port that was free
		if c, err = startCluster(size); err == nil {
			return c, nil
		}
		err = errors.Join(err, c.Close())
	}
	return nil, err
}

func startCluster(size int) (c Cluster, err error) {
	var listen, routes []string
	for i := range size {
		listen = append(listen, "127.0.0.1:"+testserver.FreePort())
		routes = append(routes, "nats://"+listen[i])
	}
	for i := range size {
		settings := "jetstream: enabled\n"
		if size > 1 {
			settings += fmt.Sprintf("cluster { name: c, listen: %q, no_advertise: true, routes: [%s] }\n", listen[i], strings.Join(routes, ", "))
		}
		s, err := New(fmt.Sprint("n", i), settings)
		if err != nil {
			return c, err
		}
		c = append(c, s)
		if err := s.Launch(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Addresses returns where clients connect.
func (c Cluster) Addresses() (addresses []string) {
	for _, s := range c {
		addresses = append(addresses, s.Address())
	}
	return addresses
}

// Close kills the servers and deletes their data.
func (c Cluster) Close() (err error) {
	for _, s := range c {
		err = errors.Join(err, s.Close())
	}
	return err
}
