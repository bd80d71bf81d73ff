package redisstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// patience is how long a server may take to respond whose response the store can do without.
const patience = 2 * time.Second

// A node is a server that has responded.
type node struct {
	address string
	client  rueidis.Client
	about   map[string]string // the fields of its INFO
	denied  error             // of a replica that rejects the user, and has told nothing about itself
}

func (n *node) isPrimary() bool { return n.about["role"] == "master" }

// isSynchronizing reports whether the node is a replica that does not have the data of its primary
// yet. While it loads them, Redis turns its append-only file off.
func (n *node) isSynchronizing() bool {
	return !n.isPrimary() && n.about["master_link_status"] != "up"
}

// id identifies the process of the server, which may have several addresses.
func (n *node) id() string { return n.about["run_id"] }

// nodes returns the servers that the store's client calls. A replica that does not respond is
// left out.
func (s *Store) nodes(ctx context.Context) (nodes []node, err error) {
	down := make(map[string]error)
	for address, client := range s.client.Nodes() {
		about, err := info(ctx, client)
		if err != nil {
			down[address] = err
			continue
		}
		nodes = append(nodes, node{address: address, client: client, about: about})
	}
	for address, err := range down {
		if len(nodes) == 0 {
			return nil, err
		}
		client := nodes[0].client
		members, asked := client.Do(ctx, client.B().ClusterNodes().Build()).ToString()
		if asked != nil || !isReplica(members, address) {
			return nil, fmt.Errorf("%s: %w", address, err)
		}
	}
	return nodes, nil
}

// readLimit reads how long an argument may be. A server closes the connection, which others share,
// when it gets a longer one. If the server does not show the setting, it counts as Redis's default.
func (s *Store) readLimit(ctx context.Context) error {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		limit := int64(defaultLongest)
		reply := n.client.Do(ctx, n.client.B().ConfigGet().Parameter("proto-max-bulk-len").Build())
		if err := reply.NonRedisError(); err != nil {
			return err
		}
		set, _ := reply.AsStrMap() // an error, or anything else, does not show it
		if n, err := strconv.ParseInt(set["proto-max-bulk-len"], 10, 64); err == nil {
			limit = n
		}
		s.longest = min(s.longest, limit)
	}
	return nil
}

// defaultLongest is the default of proto-max-bulk-len.
const defaultLongest = 512 << 20

// isReplica reports whether CLUSTER NODES calls the node with an address a replica. Its lines
// are
//
//	ID IP:PORT@BUS,HOSTNAME FLAGS …
func isReplica(members, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for line := range strings.Lines(members) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		at, names, _ := strings.Cut(fields[1], "@")
		name := strings.Split(names, ",")
		ip := strings.TrimSuffix(at, ":"+port)
		if ip != at && (ip == host || len(name) > 1 && name[1] == host) {
			return slices.Contains(strings.Split(fields[2], ","), "slave")
		}
	}
	return false
}

// replicasOf returns the replicas that are connected to the primaries among some nodes, and that
// respond, also by rejecting the user. Without the options of a client, those are the replicas
// among the nodes.
func (s *Store) replicasOf(ctx context.Context, nodes []node) (replicas []node) {
	known := make(map[string]bool) // the nodes by ID
	for _, n := range nodes {
		known[n.id()] = true
		if !n.isPrimary() {
			replicas = append(replicas, n)
		}
	}
	if s.options == nil {
		return replicas
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, n := range nodes {
		for _, address := range n.replicas() {
			asking.Go(func() {
				about, err := s.ask(ctx, address)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case rejectsUser(err):
					replicas = append(replicas, node{address: address, denied: err})
				case err == nil && !known[about["run_id"]]:
					known[about["run_id"]] = true
					replicas = append(replicas, node{address: address, about: about})
				}
			})
		}
	}
	asking.Wait()
	return replicas
}

// rejectsUser reports whether a server's error is that it does not know the user, or that the user
// lacks a permission.
func rejectsUser(err error) bool {
	failed, ok := rueidis.IsRedisErr(err)
	return denied(err) != nil || ok && (strings.HasPrefix(failed.Error(), "WRONGPASS ") || strings.HasPrefix(failed.Error(), "NOAUTH "))
}

// replicas returns the addresses of the replicas that are connected to a node. The fields are
//
//	slave0:ip=IP,port=PORT,state=online,…
func (n *node) replicas() (addresses []string) {
	for i := 0; ; i++ {
		text, ok := n.about[fmt.Sprint("slave", i)]
		if !ok {
			return addresses
		}
		var ip, port string
		for _, field := range strings.Split(text, ",") {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "ip":
				ip = value
			case "port":
				port = value
			}
		}
		addresses = append(addresses, net.JoinHostPort(ip, port))
	}
}

// ask returns the INFO of a server to which the store's client has no connection.
func (s *Store) ask(ctx context.Context, address string) (map[string]string, error) {
	o := *s.options
	o.InitAddress, o.SelectDB, o.Sentinel, o.Standalone = []string{address}, 0, rueidis.SentinelOption{}, rueidis.StandaloneOption{}
	o.SendToReplicas, o.ReplicaOnly = nil, false
	client, err := newSingle(o)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return info(ctx, client)
}

// newSingle connects to one server, which has to respond soon.
func newSingle(o rueidis.ClientOption) (rueidis.Client, error) {
	o.ForceSingleClient, o.DisableRetry, o.Dialer.Timeout, o.ConnWriteTimeout = true, true, patience, patience
	return rueidis.NewClient(o)
}
