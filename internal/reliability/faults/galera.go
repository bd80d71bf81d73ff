//go:build linux

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

const galeraLibrary = "/usr/lib/galera/libgalera_smm.so"

// A Galera is a cluster of three MariaDB servers, each of which has all data.
type Galera struct{ Nodes [3]*Server }

// NewGalera starts a cluster. Close ends it.
func NewGalera(shared string) (*Galera, error) {
	_, err := os.Stat(galeraLibrary)
	if err == nil {
		_, err = exec.LookPath("rsync") // copies the data to a node that joins
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	g := new(Galera)
	if err := g.start(shared); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Galera) start(shared string) error {
	const each = 3 // ports of a node, besides that for clients
	var ports [3 * each]string
	var addresses []string
	for i := range ports {
		ports[i] = testserver.FreePort()
		if i%each == 0 {
			addresses = append(addresses, "127.0.0.1:"+ports[i])
		}
	}
	for i := range g.Nodes {
		group, copies, missed := ports[i*each], ports[i*each+1], ports[i*each+2]
		joining := MariaDB.With("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=1", "--wsrep-provider="+galeraLibrary,
			"--wsrep-cluster-name=onlyonce", "--wsrep-cluster-address=gcomm://"+strings.Join(addresses, ","),
			"--wsrep-node-address="+addresses[i], "--wsrep-sst-method=rsync", "--wsrep-sst-receive-address=127.0.0.1:"+copies,
			fmt.Sprintf("--wsrep-provider-options=base_port=%s;gmcast.listen_addr=tcp://%s;ist.recv_addr=127.0.0.1:%s;gcache.size=32M", group, addresses[i], missed))
		kind := joining
		if i == 0 {
			kind = joining.With("--wsrep-new-cluster")
		}
		var err error
		if g.Nodes[i], err = New(kind, shared); err != nil {
			return err
		}
		g.Nodes[i].Kind = joining // when it is started again
	}
	return g.Await(g.Nodes[0], len(g.Nodes))
}

// Await waits until a node serves clients in a cluster that has so many nodes.
func (g *Galera) Await(n *Server, size int) error {
	for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		is, err := wsrepStatus(n)
		if err == nil && is["wsrep_ready"] == "ON" && is["wsrep_local_state_comment"] == "Synced" && is["wsrep_cluster_size"] == fmt.Sprint(size) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the node does not serve clients in a cluster of %d: %v, error %w", size, is, err)
		}
	}
}

func wsrepStatus(n *Server) (map[string]string, error) {
	rows, err := n.Admin.Query("SHOW STATUS LIKE 'wsrep%'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	is := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		is[name] = value
	}
	return is, rows.Err()
}

// Close ends the nodes.
func (g *Galera) Close() (err error) {
	for _, n := range g.Nodes {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	return err
}
