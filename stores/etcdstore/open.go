package etcdstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// Config is how a store is opened. The zero Config is ready for use.
type Config struct {
	// Prefix begins the names of all keys, such as "onlyonce/records/3f/…". Two stores with
	// different prefixes have nothing in common, unless one prefix begins with the other
	// and a slash. It must not begin or end with a slash. Default: "onlyonce".
	Prefix string

	// Members is how many voting members the cluster must have at least. Fewer are a
	// finding. Default: 1.
	Members int

	// Timeout is how long a call tries to reach the cluster, unless its context ends
	// before. The election of a new leader takes some seconds. Default: 10 seconds.
	Timeout time.Duration

	// AcceptRisks are the names of findings (see Diagnose) with which Open opens the store
	// all the same.
	AcceptRisks []string
}

// The values of a Config's fields that are zero.
const (
	DefaultPrefix  = "onlyonce"
	DefaultMembers = 1
	DefaultTimeout = 10 * time.Second
)

// A Store keeps records in etcd. It is safe for concurrent use.
type Store struct {
	client        *clientv3.Client
	keys          keys
	members       int
	timeout       time.Duration
	cluster       *cluster
	clock         *clock
	leases        *leases
	subscriptions *waiters.Subscriptions
	seenCache     record.SeenCache
	recent        record.Recent[stored]
	open          openCommands
	closing       context.Context // ends when the store is closed
	close         context.CancelFunc
	large         chan struct{} // has an item for each result that is being read

	mu      sync.Mutex
	closed  bool
	busy    bool // the clock is being published
	running sync.WaitGroup
}

var (
	_ onlyonce.Store     = (*Store)(nil)
	_ onlyonce.Lister    = (*Store)(nil)
	_ onlyonce.Waiter    = (*Store)(nil)
	_ onlyonce.Resolver  = (*Store)(nil)
	_ onlyonce.Diagnoser = (*Store)(nil)
)

func (cfg Config) check() error {
	switch prefix := cfg.prefix(); {
	case strings.HasPrefix(prefix, "/") || strings.HasSuffix(prefix, "/"):
		return fmt.Errorf("the Prefix %q begins or ends with a slash: leave the slash out", prefix)
	case cfg.Members < 0:
		return fmt.Errorf("the Config has %d Members: set it to 1 or more, or leave it 0 for 1", cfg.Members)
	case cfg.Timeout < 0:
		return fmt.Errorf("the Config has a Timeout of %v: it may not be negative", cfg.Timeout)
	}
	return engine.Reject(nil, cfg.AcceptRisks, risks)
}

func (cfg Config) prefix() string { return cmp.Or(cfg.Prefix, DefaultPrefix) }

func (cfg Config) timeout() time.Duration { return cmp.Or(cfg.Timeout, DefaultTimeout) }

func (cfg Config) store(client *clientv3.Client) (*Store, error) {
	if client == nil {
		panic("etcdstore: there is no client: pass what clientv3.New returned")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{
		client: client, keys: keys{cfg.prefix()}, members: cmp.Or(cfg.Members, DefaultMembers), timeout: cfg.timeout(),
		large: make(chan struct{}, largeReads),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.cluster = &cluster{clock: s.keys.clock()}
	s.clock, s.leases = newClock(client, s.cluster, s.keys.clock()), newLeases(client, s.cluster)
	s.subscriptions = waiters.NewSubscriptions(s.listen)
	return s, nil
}

// Migrate makes the key without which the store takes no new command: its clock, which
// begins at the time of this process. It reports whether the key was missing. Call it when
// you set up etcd, or once you know why it has forgotten its records, and not at every start.
// It never deletes or changes anything. It rejects a client whose endpoints belong to more
// than one cluster.
func Migrate(ctx context.Context, client *clientv3.Client, cfg Config) (made bool, err error) {
	s, err := cfg.store(client)
	if err == nil {
		err = s.rejectMixed(ctx)
	}
	if err == nil {
		err = s.repeat(ctx, func(ctx context.Context) error {
			again, err := s.clock.create(ctx)
			made = made || again
			return err
		})
	}
	if err == nil && made {
		err = s.rejectMixed(ctx) // clusters that have the same ID differ by the key
	}
	return made && err == nil, wrap("migrate", err)
}

// rejectMixed returns an error if the client's endpoints belong to more than one cluster.
func (s *Store) rejectMixed(ctx context.Context) error {
	var findings []onlyonce.Finding
	err := s.repeat(ctx, func(ctx context.Context) (err error) {
		_, findings, err = s.status(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return engine.Reject(findings, nil, risks)
}

// Open opens a store on a cluster that Migrate has set up. It rejects a cluster whose
// settings would break the promise (see Diagnose), unless the risk is accepted. A cluster
// that is full is not rejected, because its records can still be read. The client stays the
// caller's: close it after the store.
func Open(ctx context.Context, client *clientv3.Client, cfg Config) (*Store, error) {
	s, err := cfg.store(client)
	if err != nil {
		return nil, wrap("open", err)
	}
	findings, err := s.diagnose(ctx)
	if err == nil {
		err = engine.Reject(findings, append(cfg.AcceptRisks[:len(cfg.AcceptRisks):len(cfg.AcceptRisks)], RiskSpace), risks)
	}
	if err != nil {
		return nil, wrap("open", err)
	}
	return s, nil
}

// Close ends the store's watches. It does not close the client.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.subscriptions.Close()
	s.running.Wait()
	return nil
}
