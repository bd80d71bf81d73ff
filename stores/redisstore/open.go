package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
)

// Config is how a store is opened. The zero Config is ready for use.
type Config struct {
	// Prefix begins the names of all keys, such as "onlyonce:{3f}:…". Two stores
	// with different prefixes have nothing in common. It must not contain braces.
	// Default: "onlyonce".
	Prefix string

	// Replicas is how many replicas must have received a change before a call
	// returns. If these are all, a failover does not forget it; if there are more, that
	// is unlikely. A call that too few of them confirm in time is an error; the change
	// may have taken effect, and the call may be repeated. Each call takes a second round
	// trip and, for its duration, a connection of its own. Default: 0.
	Replicas int

	// Flushed makes a call wait until the primary, and as many replicas as Replicas says,
	// have the change on disk. It needs Redis 7.2 or Valkey (WAITAOF) with appendonly on all
	// of these servers. With appendfsync everysec, a call takes up to a second or more;
	// with always, what the flush takes. Default: false.
	Flushed bool

	// ReplicaTimeout is how long a call waits for the replicas, and with Flushed for the
	// primary's disk. Default: 1 second, with Flushed 5 seconds.
	ReplicaTimeout time.Duration

	// AcceptRisks are the names of findings (see Diagnose) with which Open
	// opens the store all the same.
	AcceptRisks []string
}

// The values of a Config's fields that are zero.
const (
	DefaultPrefix         = "onlyonce"
	DefaultReplicaTimeout = time.Second
	DefaultFlushTimeout   = 5 * time.Second
)

// A Store keeps records in Redis. It is safe for concurrent use.
type Store struct {
	client         rueidis.Client
	keys           keys
	replicas       int
	flushed        bool
	replicaTimeout time.Duration
	claims         *batcher
	settlements    *batcher
	subscriptions  *subscriptions

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

// Migrate makes the keys without which the store takes no new command. Call it when
// you set up the server, or once you know why it has forgotten its records, and not
// at every start. It never deletes anything. It returns how many of the keys were
// missing: none if the server is set up, and all of them if it is new or has forgotten
// everything.
func Migrate(ctx context.Context, client rueidis.Client, cfg Config) (made int, err error) {
	k, err := cfg.keys()
	if err != nil {
		return 0, wrap("migrate", err)
	}
	var commands rueidis.Commands
	for p := range partitions {
		index := k.index(byte(p))
		commands = append(commands,
			client.B().Xadd().Key(index).Id(firstEntry).FieldValue().FieldValue("n", "").Build(),
			client.B().Xdel().Key(index).Id(firstEntry).Build())
	}
	for i, result := range client.DoMulti(ctx, commands...) {
		err := result.Error()
		if failed, ok := rueidis.IsRedisErr(err); ok && strings.Contains(failed.Error(), "equal or smaller") {
			continue // there is an index already
		}
		if err != nil {
			return made, wrap("migrate", err)
		}
		if i%2 == 0 {
			made++
		}
	}
	return made, nil
}

// firstEntry is the ID of an entry that is added to make an index, and deleted at
// once. An index that is there already does not take it.
const firstEntry = "0-1"

func (cfg Config) keys() (keys, error) {
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return keys{}, fmt.Errorf("the Prefix %q has a brace, which would choose the slot of every key: leave it out", cfg.Prefix)
	}
	return keys{cmp.Or(cfg.Prefix, DefaultPrefix)}, nil
}

func (cfg Config) timeout() time.Duration {
	if cfg.Flushed {
		return cmp.Or(cfg.ReplicaTimeout, DefaultFlushTimeout)
	}
	return cmp.Or(cfg.ReplicaTimeout, DefaultReplicaTimeout)
}

// check returns as an error what Open would reject whatever the server.
func (cfg Config) check() error {
	if _, err := cfg.keys(); err != nil {
		return err
	}
	if cfg.Replicas < 0 || cfg.ReplicaTimeout < 0 || cfg.ReplicaTimeout%time.Millisecond != 0 {
		return fmt.Errorf("the Config has %d Replicas and a ReplicaTimeout of %v: neither may be negative, and the time must be in whole milliseconds", cfg.Replicas, cfg.ReplicaTimeout)
	}
	return reject(nil, cfg.AcceptRisks)
}

// Open opens a store on a server that Migrate has set up. It rejects a server
// whose settings would break the promise (see Diagnose), unless the risk is
// accepted. The client stays the caller's: close it after the store.
func Open(ctx context.Context, client rueidis.Client, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, wrap("open", err)
	}
	k, err := cfg.keys()
	if err != nil {
		return nil, wrap("open", err)
	}
	s := &Store{
		client: client, keys: k, subscriptions: newSubscriptions(client, k),
		replicas: cfg.Replicas, flushed: cfg.Flushed, replicaTimeout: cfg.timeout(),
	}
	findings, err := s.diagnose(ctx)
	if err == nil {
		err = reject(findings, cfg.AcceptRisks)
	}
	if err == nil && cfg.Flushed {
		err = s.canFlush(ctx)
	}
	if err == nil {
		err = s.batches(ctx)
	}
	if err != nil {
		return nil, wrap("open", err)
	}
	return s, nil
}

// Close waits for the calls that are under way and ends the store's subscriptions. It
// does not close the client.
func (s *Store) Close() error {
	s.claims.close()
	s.settlements.close()
	s.subscriptions.close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.sweeping.Wait()
	return nil
}
