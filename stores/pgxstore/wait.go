package pgxstore

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// A process with waiters runs LISTEN on a channel and holds a shared advisory lock. A
// process that ends a command sends NOTIFY only if that lock is held, which it checks
// once per second: PostgreSQL serializes commits that notify, so this keeps
// settlements cheap while nobody waits. A waiter that has just started can miss a
// notification, and therefore polls as well.
const (
	commandsChannel       = "onlyonce"
	commandsLock    int64 = 7380959162154215793
	outboxChannel         = "onlyonce_outbox"
	outboxLock      int64 = 7380959162154215794
)

// A listener receives notifications on one connection for as long as somebody waits.
type listener struct {
	pool    *pgxpool.Pool
	channel string
	lock    int64
	made    time.Time // times are counted from here by the monotonic clock, because the wall clock may be set back

	checkAt atomic.Int64 // when the lock is to be checked next, in nanoseconds since made
	there   atomic.Bool  // whether somebody held it when it was last checked

	mu      sync.Mutex
	waiting waiters.Waiters    // by channel name of the key
	stop    context.CancelFunc // of the listening; nil: nobody listens
	ended   chan struct{}      // closed when the listening has ended
	closed  bool
}

func newListener(pool *pgxpool.Pool, channel string, lock int64) *listener {
	return &listener{pool: pool, channel: channel, lock: lock, made: time.Now(), waiting: make(waiters.Waiters)}
}

// channelSize is the length of a key's channel name, in bytes.
const channelSize = 16

// channel returns the name by which listeners know the key.
func channel(k *record.Key) string { return hex.EncodeToString(k.Hash[:channelSize/2]) }

// wait returns when the name was notified, or may have been, or when ctx ends.
func (e *listener) wait(ctx context.Context, name string) error {
	woken := make(chan struct{}, 1)
	if !e.enter(name, woken) {
		return group.ErrClosed
	}
	defer e.exit(name, woken)
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkEvery is how long the result of checking the lock is used.
const checkEvery = time.Second

// notify returns the statements that notify the listeners of the names, if there are
// any listeners, and check the lock when that is due.
func (e *listener) notify(names string) *notification {
	now, at := time.Since(e.made), e.checkAt.Load()
	return &notification{
		listener: e, names: names, notifies: e.there.Load(),
		checks: int64(now) >= at && e.checkAt.CompareAndSwap(at, int64(now+checkEvery)),
	}
}

// A notification is the part of a pipeline that notifies listeners.
type notification struct {
	listener *listener
	names    string
	notifies bool // somebody listened when that was last checked
	checks   bool // the pipeline also checks whether somebody listens
}

func (t *notification) queue(b *pgx.Batch, text map[string]string) {
	if t.notifies {
		b.Queue(text["notify"], t.listener.channel, t.names)
	}
	if t.checks {
		b.Queue(text["is listening"], t.listener.lock)
	}
}

func (t *notification) read(results pgx.BatchResults) error {
	if t.notifies {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if !t.checks {
		return nil
	}
	var there bool
	err := results.QueryRow().Scan(&there)
	t.listener.there.Store(there)
	return err
}

func (e *listener) enter(name string, woken chan struct{}) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.waiting.Add(name, woken)
	if e.stop == nil {
		var ctx context.Context
		ctx, e.stop = context.WithCancel(context.Background())
		e.ended = make(chan struct{})
		go e.listen(ctx, e.ended)
	}
	return true
}

func (e *listener) exit(name string, woken chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting.Remove(name, woken)
}

// idle reports whether nobody waits. If so, it stops the listening.
func (e *listener) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) > 0 {
		return false
	}
	e.stop()
	e.stop = nil
	return true
}

// wake wakes the waiters for each of the names; "" for all. A notification may have
// hundreds of names, and there may be thousands of waiters.
func (e *listener) wake(names string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if names == "" {
		e.waiting.WakeAll()
		return
	}
	for ; len(names) >= channelSize; names = names[channelSize:] {
		e.waiting.Wake(names[:channelSize])
	}
}

var errShared = errors.New("LISTEN does not work through a pooler")

// listen receives notifications until nobody waits, which it checks every
// waiters.IdleGrace. That is also the pause before a lost connection is replaced. A new
// connection wakes every waiter, because it missed earlier notifications.
func (e *listener) listen(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	for {
		_ = e.receive(ctx) // waiters poll as well
		if ctx.Err() != nil || e.idle() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(waiters.IdleGrace):
		}
	}
}

func (e *listener) receive(ctx context.Context) error {
	l := storeConn{pool: e.pool}
	defer l.close()
	if err := l.use(func(ctx context.Context, conn *pgx.Conn) error {
		if l.shared {
			return errShared
		}
		if _, err := conn.Exec(ctx, strings.Replace(sqlText["listen"], "{channel}", e.channel, 1)); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, sqlText["listening"], e.lock)
		return err
	}); err != nil {
		return err
	}
	e.wake("")
	for {
		turn, cancel := context.WithTimeout(ctx, waiters.IdleGrace)
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

func (e *listener) close() {
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
