package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// Config is how a store is opened. The zero Config is ready for use.
type Config struct {
	// Prefix begins the names of all keys, such as "onlyonce:{3f}:…". Two stores
	// with different prefixes have nothing in common. It must not contain braces.
	// Default: "onlyonce".
	Prefix string

	// Replicas is the number of replicas that must have received a change before a
	// call returns. If it is the number of all replicas, a failover does not lose the
	// change. If there are more replicas, a loss is unlikely, but possible. Redis counts
	// replicas that are never promoted (replica-priority 0), too. A call that
	// too few replicas confirm in time returns an error: the change may have taken
	// effect, and the call may be repeated. After such an error, a claim first waits for
	// the replicas, and changes nothing if they do not confirm. Each call needs a second
	// round trip and, while it runs, its own connection. Default: 0.
	Replicas int

	// Flushed makes a call wait until the primary, and as many replicas as Replicas says,
	// have the change on disk. It needs Redis 7.2 or Valkey (WAITAOF) with appendonly on all
	// of these servers. With appendfsync everysec, a call takes up to a second or more;
	// with always, what the flush takes. Default: false.
	Flushed bool

	// ReplicaTimeout is how long a call waits for the replicas, and with Flushed for the
	// primary's disk. Default: 1 second, with Flushed 5 seconds.
	ReplicaTimeout time.Duration

	// Client has the options of the client. With them, Open and Diagnose connect to each
	// replica that a primary names, and also examine its settings, which count once it is
	// promoted. A replica that rejects their user is a finding; one that does not respond
	// within 2 seconds is left out. ParseURL sets Client; if you change the options that it
	// returns, set Client to the changed ones.
	// Default: only the replicas that the client itself knows are examined, which are those of
	// a cluster.
	Client *rueidis.ClientOption

	// AcceptRisks are the names of findings (see Diagnose) that do not keep Open
	// from opening the store.
	AcceptRisks []string
}

// The defaults of Config.
const (
	DefaultPrefix         = "onlyonce"
	DefaultReplicaTimeout = time.Second
	DefaultFlushTimeout   = 5 * time.Second
)

// A Store keeps records in Redis. It is safe for concurrent use.
type Store struct {
	client         rueidis.Client
	options        *rueidis.ClientOption // of the client; nil: they are unknown
	known          atomic.Pointer[known]
	replicas       int
	flushed        bool
	replicaTimeout time.Duration
	unconfirmed    atomic.Pointer[string] // a mark that too few servers confirmed, so a claim asks them before it changes anything
	longest        int64                  // how many bytes an argument of a script may have
	claims         *batcher
	settlements    *batcher
	subscriptions  *waiters.Subscriptions
	long           chan struct{}            // has an item for each long value that is being read
	unswept        [partitions]atomic.Int64 // until when nothing is to be swept from an index

	mu       sync.Mutex
	closed   bool
	sweeping sync.WaitGroup
}

var (
	_ onlyonce.Store     = (*Store)(nil)
	_ onlyonce.Lister    = (*Store)(nil)
	_ onlyonce.Waiter    = (*Store)(nil)
	_ onlyonce.Resolver  = (*Store)(nil)
	_ onlyonce.Diagnoser = (*Store)(nil)
)

// Migrate creates the keys without which the store rejects new commands. Call it when
// you set up the server, or once you know why it has lost its records, but not at
// every start. It never deletes anything. It returns how many of the keys were
// missing: 0 if the server was set up already, and all of them if it is new or has
// lost everything. It returns an error if the servers have keys of different stores.
func Migrate(ctx context.Context, client rueidis.Client, cfg Config) (made int, err error) {
	mustHave(client)
	k, err := cfg.keys()
	if err != nil {
		return 0, wrap("migrate", err)
	}
	identity, _, err := identities(ctx, client, k)
	if err == nil && identity == "" {
		identity, err = identify(ctx, client, k)
	}
	if err != nil {
		return 0, wrap("migrate", err)
	}
	k = k.with(identity)
	const each = 3
	var commands rueidis.Commands
	for p := range partitions {
		index := k.index(byte(p))
		commands = append(commands,
			client.B().Set().Key(k.identityKey(byte(p))).Value(identity).Nx().Get().Build(),
			client.B().Xadd().Key(index).Id(firstEntry).FieldValue().FieldValue("n", "").Build(),
			client.B().Xdel().Key(index).Id(firstEntry).Build())
	}
	for i, result := range client.DoMulti(ctx, commands...) {
		err := result.Error()
		if i%each == 0 {
			was, err := result.ToString()
			switch {
			case rueidis.IsRedisNil(err):
			case err != nil:
				return made, wrap("migrate", err)
			case was != identity:
				return made, wrap("migrate", mixed(identity, was))
			}
			continue
		}
		if failed, ok := rueidis.IsRedisErr(err); ok && strings.Contains(failed.Error(), "equal or smaller") {
			continue // the index exists
		}
		if err != nil {
			return made, wrap("migrate", err)
		}
		if i%each == 1 {
			made++
		}
	}
	return made, nil
}

// firstEntry is the ID of an entry that is added to create an index, and deleted
// immediately. An index that already exists rejects it.
const firstEntry = "0-1"

func (cfg Config) keys() (keys, error) {
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return keys{}, fmt.Errorf("the Prefix %q has a brace, which would determine the slot of every key: remove it", cfg.Prefix)
	}
	return keys{prefix: cmp.Or(cfg.Prefix, DefaultPrefix)}, nil
}

func (cfg Config) timeout() time.Duration {
	if cfg.Flushed {
		return cmp.Or(cfg.ReplicaTimeout, DefaultFlushTimeout)
	}
	return cmp.Or(cfg.ReplicaTimeout, DefaultReplicaTimeout)
}

// check returns an error if Open would reject the Config for any server.
func (cfg Config) check() error {
	if _, err := cfg.keys(); err != nil {
		return err
	}
	if cfg.Replicas < 0 || cfg.ReplicaTimeout < 0 || cfg.ReplicaTimeout%time.Millisecond != 0 {
		return fmt.Errorf("the Config has %d Replicas and a ReplicaTimeout of %v: neither may be negative, and the time must be in whole milliseconds", cfg.Replicas, cfg.ReplicaTimeout)
	}
	return reject(nil, cfg.AcceptRisks)
}

func mustHave(client rueidis.Client) {
	if client == nil {
		panic("redisstore: there is no client: pass what rueidis.NewClient returned")
	}
}

// Open opens a store on a server that Migrate has set up. It rejects a server
// whose settings would break the store's guarantees (see Diagnose), unless the risk
// is accepted. The Store does not close the client: close it after the store.
func Open(ctx context.Context, client rueidis.Client, cfg Config) (*Store, error) {
	mustHave(client)
	if err := cfg.check(); err != nil {
		return nil, wrap("open", err)
	}
	k, err := cfg.keys()
	if err != nil {
		return nil, wrap("open", err)
	}
	s := &Store{
		client: client, options: cfg.Client, subscriptions: waiters.NewSubscriptions(subscribe(client, k)),
		replicas: cfg.Replicas, flushed: cfg.Flushed, replicaTimeout: cfg.timeout(),
		long: make(chan struct{}, longReads), longest: math.MaxInt64,
	}
	s.known.Store(&known{keys: k})
	if err := s.learn(ctx); err != nil {
		return nil, wrap("open", err)
	}
	findings, err := s.diagnose(ctx)
	if err == nil {
		err = reject(findings, cfg.AcceptRisks)
	}
	if err == nil && cfg.Flushed {
		err = s.canFlush(ctx)
	}
	if err == nil {
		err = s.permitted(ctx)
	}
	if err == nil {
		err = s.readLimit(ctx)
	}
	if err == nil {
		err = s.batches(ctx)
	}
	if err != nil {
		return nil, wrap("open", err)
	}
	return s, nil
}

// Close waits for calls that are in progress and ends the store's subscriptions. It
// does not close the client.
func (s *Store) Close() error {
	s.claims.close()
	s.settlements.close()
	s.subscriptions.Close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.sweeping.Wait()
	return nil
}
