//go:build linux

package rounds

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// A redisNode is a server that other servers know by the address of a cutting proxy.
type redisNode struct {
	*redisserver.Server
	proxy *faults.CuttingProxy
}

// startRedis starts a server that flushes every write before it replies.
func startRedis(options ...string) (*redisNode, error) {
	proxy, err := faults.NewCuttingProxy("")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(proxy.Address())
	if err == nil {
		var s *redisserver.Server
		s, err = redisserver.Start(append([]string{
			"--appendfsync", "always", "--replica-announce-ip", host, "--replica-announce-port", port,
			"--cluster-announce-ip", host, "--cluster-announce-port", port,
		}, options...)...)
		if err == nil {
			proxy.SetTarget(s.Address())
			return &redisNode{s, proxy}, nil
		}
	}
	proxy.Close()
	return nil, err
}

// follow makes the server a replica of another.
func (n *redisNode) follow(primary *redisNode) error {
	host, port, err := net.SplitHostPort(primary.proxy.Address())
	if err == nil {
		_, err = n.Do("REPLICAOF", host, port)
	}
	return err
}

// kill kills the server. Bytes that its replica has not received are lost.
func (n *redisNode) kill() {
	n.proxy.SetTarget("")
	n.proxy.SetDelay(0)
	n.Kill()
}

func (n *redisNode) restart() error {
	err := n.Restart()
	n.proxy.SetTarget(n.Address())
	return err
}

// replicationOffset returns how many bytes of commands a server has executed, as a primary or a replica.
func (n *redisNode) replicationOffset(name string) (bytes int64, err error) {
	text, err := n.Do("INFO", "replication")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, name)
	_, err = fmt.Sscan(rest, &bytes)
	return bytes, err
}

// A redisPair is a primary and its replica, which may be nil.
type redisPair struct{ primary, replica *redisNode }

// startPair starts two servers that do not replicate yet.
func startPair(options ...string) (p *redisPair, err error) {
	p = &redisPair{}
	if p.primary, err = startRedis(options...); err == nil {
		p.replica, err = startRedis(options...)
	}
	return p, err
}

// awaitSync waits until the replica has all data, and has it on disk. After a full
// synchronization, Redis rewrites the append-only file. A server that is killed before that
// restarts with the old content of the file.
func (p *redisPair) awaitSync(ctx context.Context) error {
	return errors.Join(
		p.primary.Await(ctx, "state=online", "INFO", "replication"),
		p.replica.Await(ctx, "master_link_status:up", "INFO", "replication"),
		p.replica.Await(ctx, "aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0", "INFO", "persistence"))
}

// awaitLag waits until the primary has executed this number of bytes that the replica has not
// received.
func (p *redisPair) awaitLag(ctx context.Context, bytes int64) error {
	for ctx.Err() == nil {
		primary, err := p.primary.replicationOffset("master_repl_offset:")
		if err != nil {
			return err
		}
		replica, err := p.replica.replicationOffset("slave_repl_offset:")
		if err != nil || primary-replica >= bytes {
			return err
		}
	}
	return ctx.Err()
}

func (p *redisPair) close() (err error) {
	for _, n := range []*redisNode{p.primary, p.replica} {
		if n != nil {
			n.proxy.Close()
			err = errors.Join(err, n.Close())
		}
	}
	return err
}

// redisServers has one server, or primaries with replicas.
type redisServers struct {
	url       string
	pairs     []*redisPair
	lag       int64                 // bytes that a replica has not received when its primary is killed
	sentinels []*redisserver.Server // none: one server, or a cluster
}

// closeOnError closes the servers if there is an error.
func (r *redisServers) closeOnError(err error) (System, error) {
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// NewRedis starts one server.
func NewRedis() (System, error) {
	r := &redisServers{}
	primary, err := startRedis()
	if err == nil {
		r.pairs = []*redisPair{{primary: primary}}
		r.url = "redis://" + primary.Address()
		err = r.migrate()
	}
	return r.closeOnError(err)
}

// masterSet is the name by which the Sentinels know the servers.
const masterSet = "shop"

// NewSentinel starts a primary, a replica and three Sentinels. replicas is the number of
// replicas that the store waits for, and lag the number of bytes that the replica has not
// received when the primary is killed.
func NewSentinel(replicas int, lag int64) (System, error) {
	r := &redisServers{lag: lag}
	return r.closeOnError(r.startSentinels(replicas))
}

func (r *redisServers) startSentinels(replicas int) error {
	p, err := startPair()
	r.pairs = []*redisPair{p}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := errors.Join(p.replica.follow(p.primary), p.awaitSync(ctx)); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(p.primary.proxy.Address())
	if err != nil {
		return err
	}
	var addresses []string
	for range 3 {
		s, err := redisserver.StartSentinel(
			fmt.Sprintf("sentinel monitor %s %s %s 2", masterSet, host, port),
			fmt.Sprintf("sentinel down-after-milliseconds %s 3600000", masterSet)) // none acts by itself because the machine is slow
		if err != nil {
			return err
		}
		r.sentinels, addresses = append(r.sentinels, s), append(addresses, s.Address())
	}
	if err := r.awaitAgreement(ctx, p.primary); err != nil {
		return err
	}
	r.url = fmt.Sprintf("redis://%s?master_set=%s&replicas=%d", strings.Join(addresses, ","), masterSet, replicas)
	return r.migrate()
}

// awaitAgreement waits until every Sentinel takes a server for the primary, and knows its replica and
// the other Sentinels.
func (r *redisServers) awaitAgreement(ctx context.Context, primary *redisNode) error {
	for _, s := range r.sentinels {
		if err := s.Await(ctx, "address="+primary.proxy.Address()+",slaves=1,sentinels=3", "INFO", "sentinel"); err != nil {
			return err
		}
	}
	return nil
}

// NewCluster starts a cluster of three primaries, each with a replica that confirms every call.
func NewCluster() (System, error) {
	r := &redisServers{lag: 1}
	return r.closeOnError(r.startCluster())
}

func (r *redisServers) startCluster() error {
	for range 3 {
		p, err := startPair("--cluster-enabled", "yes", "--cluster-announce-bus-port", redisserver.SecondPort, "--cluster-node-timeout", "60000")
		r.pairs = append(r.pairs, p)
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	const slots = 16384
	epoch := 0
	var addresses []string
	for i, p := range r.pairs {
		if _, err := p.primary.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/3), strconv.Itoa((i+1)*slots/3-1)); err != nil {
			return err
		}
		for _, n := range []*redisNode{p.primary, p.replica} {
			epoch++
			if _, err := n.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(epoch)); err != nil {
				return err
			}
			if _, err := r.pairs[0].primary.Do("CLUSTER", "MEET", "127.0.0.1", n.Port, n.Bus); err != nil {
				return err
			}
			addresses = append(addresses, n.proxy.Address())
		}
	}
	if err := r.awaitNodes(ctx, "cluster_known_nodes:6"); err != nil {
		return err
	}
	for _, p := range r.pairs {
		id, err := p.primary.Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		if _, err := p.replica.Do("CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
		if err := p.awaitSync(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(r.awaitNodes(ctx, "cluster_state:ok"), r.awaitNodes(ctx, "cluster_slots_ok:16384"), r.awaitNodes(ctx, "cluster_current_epoch:6\r")); err != nil {
		return err
	}
	r.url = "redis://" + strings.Join(addresses, ",") + "?replicas=1"
	return r.migrate()
}

// awaitNodes waits until every node's CLUSTER INFO contains the text.
func (r *redisServers) awaitNodes(ctx context.Context, text string) error {
	for _, p := range r.pairs {
		for _, n := range []*redisNode{p.primary, p.replica} {
			if err := n.Await(ctx, text, "CLUSTER", "INFO"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *redisServers) migrate() error {
	client, cfg, err := r.dial(func(address string) (string, error) { return address, nil })
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = redisstore.Migrate(context.Background(), client, cfg)
	return err
}

// dial connects to the servers, at the addresses that to returns.
func (r *redisServers) dial(to func(address string) (string, error)) (rueidis.Client, redisstore.Config, error) {
	o, cfg, err := redisstore.ParseURL(r.url)
	if err != nil {
		return nil, cfg, err
	}
	listen := make(map[string]string) // the addresses of servers, by those of their proxies
	for _, p := range r.pairs {
		for _, n := range []*redisNode{p.primary, p.replica} {
			if n != nil {
				listen[n.proxy.Address()] = n.Address()
			}
		}
	}
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if at := listen[address]; at != "" {
			address = at
		}
		address, err := to(address)
		if err != nil {
			return nil, err
		}
		return d.DialContext(ctx, "tcp", address)
	}
	client, err := rueidis.NewClient(o)
	return client, cfg, err
}

// Open opens a store with a client of its own.
func (r *redisServers) Open(ctx context.Context, proxies *Proxies) (Store, func(), error) {
	client, cfg, err := r.dial(proxies.AddressFor)
	if err != nil {
		return nil, nil, err
	}
	s, err := redisstore.Open(ctx, client, cfg)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return s, func() { _ = s.Close(); client.Close() }, nil // its connections may have been cut
}

// Kill kills a primary. Its replica, if it has one, has not received all data, and takes its
// place.
func (r *redisServers) Kill(ctx context.Context, rng *rand.Rand) error {
	p := r.pairs[rng.IntN(len(r.pairs))]
	if p.replica == nil {
		return p.primary.Restart()
	}
	p.primary.proxy.SetDelay(20*time.Millisecond + time.Duration(rng.Int64N(int64(40*time.Millisecond))))
	if err := p.awaitLag(ctx, r.lag); err != nil {
		return err
	}
	p.primary.kill()
	if err := r.promote(ctx, p.replica); err != nil {
		return err
	}
	p.primary, p.replica = p.replica, p.primary
	if err := p.replica.restart(); err != nil {
		return err
	}
	if len(r.sentinels) == 0 {
		return errors.Join(p.awaitSync(ctx), r.awaitEpoch(ctx, p.primary)) // a cluster's node follows by itself
	}
	return errors.Join(p.replica.follow(p.primary), p.awaitSync(ctx))
}

// awaitEpoch waits until every node of the cluster knows the epoch with which a replica took over.
// A replica that takes over before it does takes the same epoch for its own; the cluster then gives
// one of the two a higher epoch, and if that one was killed, it is the primary again when it returns.
func (r *redisServers) awaitEpoch(ctx context.Context, promoted *redisNode) error {
	info, err := promoted.Do("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(info, "cluster_my_epoch:")
	epoch, _, _ := strings.Cut(rest, "\r")
	return r.awaitNodes(ctx, "cluster_current_epoch:"+epoch+"\r")
}

// promote makes a replica the primary, and returns once all clients and servers that need to know it do.
func (r *redisServers) promote(ctx context.Context, replica *redisNode) error {
	coordinator, command := replica.Server, []string{"CLUSTER", "FAILOVER", "TAKEOVER"}
	if len(r.sentinels) > 0 {
		coordinator, command = r.sentinels[0], []string{"SENTINEL", "FAILOVER", masterSet}
	}
	if err := coordinator.Await(ctx, "OK", command...); err != nil {
		return err
	}
	if err := replica.Await(ctx, "role:master", "INFO", "replication"); err != nil {
		return err
	}
	return r.awaitAgreement(ctx, replica) // a Sentinel that does not know yet would make it a replica of the old primary
}

// Close ends the servers.
func (r *redisServers) Close() (err error) {
	for _, s := range r.sentinels {
		err = errors.Join(err, s.Close())
	}
	for _, p := range r.pairs {
		err = errors.Join(err, p.close())
	}
	return err
}
