package cryptstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	fetchTime = 10 * time.Second // how long Keys may take
	fetchWait = time.Second      // how long after a fetch of a key the next one begins
	lastWait  = time.Second / 2  // how long a running attempt waits for a fetch before it uses the last key
	mostKeys  = 1000             // in the cache, so that a store with IDs of no keys does not fill the memory
)

// A readyKey is a key that has been prepared for use.
type readyKey struct {
	id    string
	check [checkSize]byte // in every envelope
	xaes  *xaes
}

// A keyCache keeps keys for a bounded time. Once half of it has passed, it fetches a key again
// in the background, so that a short outage of the source of the keys stops nothing.
type keyCache struct {
	keys Keys
	keep time.Duration

	mu   sync.Mutex
	byID map[string]*cachedKey // the current key has the empty ID here
	last *readyKey             // the current key that was fetched last, however long ago
}

// A cachedKey is a cache entry for a key.
type cachedKey struct {
	key   *readyKey
	until time.Time // when the key must not be used any more
	renew time.Time // when it is fetched again, at the earliest
	err   error     // of the last fetch
	fetch *fetch    // in progress
}

// A fetch is a call of Keys for which any number of callers may wait.
type fetch struct {
	ctx  context.Context // of the call: nobody waits for longer
	done chan struct{}
	key  *readyKey
	err  error
}

// get returns the key with the ID, or the current one if the ID is empty.
func (c *keyCache) get(ctx context.Context, id string) (*readyKey, error) {
	key, f, err := c.look(ctx, id)
	if f != nil {
		return f.wait(ctx, id)
	}
	return key, err
}

// getLast returns the current key or, if it can't be fetched, the one that was fetched last. It
// does not wait long, and not at all if the fetch before this one has failed, so that the caller
// has time to store something with the key before its lease ends.
func (c *keyCache) getLast(ctx context.Context) (*readyKey, error) {
	key, f, err := c.look(ctx, "")
	if f != nil && err == nil {
		ctx, cancel := context.WithTimeout(ctx, lastWait)
		defer cancel()
		key, err = f.wait(ctx, "")
	}
	if err == nil {
		return key, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		return c.last, nil
	}
	return nil, err
}

// wait returns the key that is fetched. The call of Keys may not return in time.
func (f *fetch) wait(ctx context.Context, id string) (*readyKey, error) {
	select {
	case <-f.done:
	case <-f.ctx.Done():
		ctx = f.ctx
	case <-ctx.Done():
	}
	select {
	case <-f.done: // f.ctx ends then, too
		return f.key, f.err
	default:
		return nil, fmt.Errorf("%s: %w", nameOf(id), context.Cause(ctx))
	}
}

// look returns the cached key. If there is none, it returns the fetch to wait for, and the error of
// the one before.
func (c *keyCache) look(ctx context.Context, id string) (*readyKey, *fetch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(id)
	now := time.Now()
	if !now.Before(e.until) {
		e.key = nil
	}
	if !now.Before(e.renew) && e.fetch == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
		e.fetch = &fetch{ctx: ctx, done: make(chan struct{})}
		go c.run(id, e, e.fetch, cancel)
	}
	if e.key != nil {
		return e.key, nil, nil
	}
	return nil, e.fetch, e.err
}

// entry returns the cache entry of a key, which may be empty. The caller holds the lock.
func (c *keyCache) entry(id string) *cachedKey {
	e := c.byID[id]
	if e == nil {
		if len(c.byID) >= mostKeys {
			maps.DeleteFunc(c.byID, func(id string, e *cachedKey) bool { return id != "" && e.fetch == nil })
		}
		e = &cachedKey{}
		c.byID[id] = e
	}
	return e
}

// run fetches a key.
func (c *keyCache) run(id string, e *cachedKey, f *fetch, cancel context.CancelFunc) {
	defer cancel()
	asked := time.Now()
	f.key, f.err = c.call(f.ctx, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	e.err, e.fetch = f.err, nil
	if f.err == nil {
		e.put(f.key, asked, c.keep)
		c.entry(f.key.id).put(f.key, asked, c.keep) // if it is the current key, it is fetched by its ID, too
		if id == "" {
			c.last = f.key
		}
	} else {
		e.renew = time.Now().Add(fetchWait)
	}
	close(f.done)
}

// put notes a key that was fetched.
func (e *cachedKey) put(k *readyKey, asked time.Time, keep time.Duration) {
	e.key, e.until, e.renew = k, asked.Add(keep), asked.Add(keep/2)
}

// call calls Keys. A panic there is an error, because the goroutine is not the caller's.
func (c *keyCache) call(ctx context.Context, id string) (key *readyKey, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v", nameOf(id), p)
		}
	}()
	k, err := c.keys.Key(ctx, id)
	if err == nil && (k.id == "" || id != "" && k.id != id) {
		err = errors.New("another key was returned")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOf(id), err)
	}
	return &readyKey{id: k.id, check: k.check(), xaes: newXAES(k.secret)}, nil
}

func nameOf(id string) string {
	if id == "" {
		return "the current key"
	}
	return fmt.Sprintf("the key %q", id)
}
