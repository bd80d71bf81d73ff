package pgxstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
)

// A waiter listens to a channel and holds a shared lock. A writer notifies only if
// that lock is held, which each process asks once a second: PostgreSQL
// makes commits wait for each other when they notify, and while nobody waits nobody
// pays for that. A waiter that
// has just begun may miss a notification, and polls.
const (
	commandsChannel       = "onlyonce"
	commandsLock    int64 = 7380959162154215793
	outboxChannel         = "onlyonce_outbox"
	outboxLock      int64 = 7380959162154215794
)

// Ears listen, on one connection, for as long as somebody waits.
type ears struct {
	pool    *pgxpool.Pool
	channel string
	lock    int64

	asked atomic.Int64 // when it was last asked whether anybody listens, in nanoseconds
	there atomic.Bool  // somebody listened then

	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by channel name of the key
	stop    context.CancelFunc                // of the listening; nil: nobody listens
	ended   chan struct{}                     // closed when the listening has ended
	closed  bool
}

func newEars(pool *pgxpool.Pool, channel string, lock int64) *ears {
	return &ears{pool: pool, channel: channel, lock: lock, waiting: make(map[string]map[chan struct{}]bool)}
}

// Wait returns when the record of id may have changed, or ctx has ended.
func (s *Store) Wait(ctx context.Context, id onlyonce.ID) error {
	k := keyOf(id)
	return wrap("wait", s.ears.wait(ctx, k.channel()))
}

// wait returns when there is news of the name, or there may be.
func (e *ears) wait(ctx context.Context, name string) error {
	woken := make(chan struct{}, 1)
	if !e.enter(name, woken) {
		return errClosed
	}
	defer e.exit(name, woken)
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askEvery is how long the answer to whether anybody listens is believed.
const askEvery = time.Second

// tell returns what notifies the listeners of the names, if there are any.
func (e *ears) tell(names string) *telling {
	now, last := time.Now().UnixNano(), e.asked.Load()
	return &telling{
		ears: e, names: names, tells: e.there.Load(),
		asks: now-last > int64(askEvery) && e.asked.CompareAndSwap(last, now),
	}
}

// A telling is a part of the pipeline that has news.
type telling struct {
	ears        *ears
	names       string
	tells, asks bool
}

const (
	notify = "SELECT pg_notify($1, $2)"
	ask    = "SELECT CASE WHEN pg_try_advisory_lock($1) THEN NOT pg_advisory_unlock($1) ELSE true END"
)

func (t *telling) queue(b *pgx.Batch) {
	if t.tells {
		b.Queue(notify, t.ears.channel, t.names)
	}
	if t.asks {
		b.Queue(ask, t.ears.lock)
	}
}

func (t *telling) read(results pgx.BatchResults) error {
	if t.tells {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if !t.asks {
		return nil
	}
	var there bool
	err := results.QueryRow().Scan(&there)
	t.ears.there.Store(there)
	return err
}

func (e *ears) enter(name string, woken chan struct{}) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	if e.waiting[name] == nil {
		e.waiting[name] = make(map[chan struct{}]bool)
	}
	e.waiting[name][woken] = true
	if e.stop == nil {
		var ctx context.Context
		ctx, e.stop = context.WithCancel(context.Background())
		e.ended = make(chan struct{})
		go e.listen(ctx, e.ended)
	}
	return true
}

func (e *ears) exit(name string, woken chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting[name], woken)
	if len(e.waiting[name]) == 0 {
		delete(e.waiting, name)
	}
}

// idle reports that nobody waits, and then ends the listening.
func (e *ears) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) > 0 {
		return false
	}
	e.stop()
	e.stop = nil
	return true
}

// wake wakes the waiters for one of the names; "" for all.
func (e *ears) wake(names string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, all := range e.waiting {
		if names != "" && !contains(names, name) {
			continue
		}
		for woken := range all {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}
}

// contains reports whether a notification's text names the key.
func contains(names, name string) bool {
	for ; len(names) >= channelSize; names = names[channelSize:] {
		if names[:channelSize] == name {
			return true
		}
	}
	return false
}

var errShared = errors.New("nobody can listen through a pooler")

// linger is how long the listening goes on without a waiter, and the
// pause before a lost connection is made again.
const linger = time.Second

// listen listens until nobody waits any more. What happened while there was no
// connection wakes everybody.
func (e *ears) listen(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	for {
		_ = e.hear(ctx) // whoever waits polls as well
		if ctx.Err() != nil || e.idle() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(linger):
		}
	}
}

func (e *ears) hear(ctx context.Context) error {
	l := line{pool: e.pool}
	defer l.close()
	if err := l.use(func(ctx context.Context, conn *pgx.Conn) error {
		if l.shared {
			return errShared
		}
		if _, err := conn.Exec(ctx, "LISTEN "+e.channel); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared($1)", e.lock)
		return err
	}); err != nil {
		return err
	}
	e.wake("")
	for {
		turn, cancel := context.WithTimeout(ctx, linger)
		n, err := l.conn.WaitForNotification(turn)
		over := turn.Err() != nil
		cancel()
		switch {
		case err == nil:
			e.wake(n.Payload)
		case ctx.Err() != nil || !over || e.idle():
			return err
		}
	}
}

func (e *ears) close() {
	e.mu.Lock()
	e.closed = true
	if e.stop != nil {
		e.stop()
	}
	ended := e.ended
	e.mu.Unlock()
	e.wake("")
	if ended != nil {
		<-ended
	}
}
