package h1

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A pool holds the idle connections to an upstream, the most recent one last.
type pool struct {
	max  int
	keep time.Duration

	mu      sync.Mutex
	idle    []*conn
	reaper  *time.Timer // nil: not set
	retired bool
}

// get returns an idle connection of the owner that is still open and has received no
// unexpected bytes, or nil. It closes those that are not.
func (p *pool) get(ctx context.Context, owner string) *conn {
	for {
		c := p.youngest(owner)
		if c == nil {
			return nil
		}
		if c.begin(ctx); time.Since(c.kept) < p.keep && c.alive() && c.silent() {
			return c
		}
		c.Close()
	}
}

// youngest removes and returns the owner's most recent connection, or nil.
func (p *pool) youngest(owner string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if c := p.idle[i]; c.owner == owner {
			p.idle = slices.Delete(p.idle, i, i+1)
			return c
		}
	}
	return nil
}

// put adds a connection whose response was read to its end.
func (p *pool) put(c *conn) {
	c.clock.ctx, c.unwatch = nil, nil
	if cap(c.in) > maxReadBuf {
		c.in = make([]byte, 0, minReadBuf)
	}
	c.kept = time.Now()
	if extra := p.add(c); extra != nil {
		extra.Close()
	}
}

// add adds a connection and returns the one that is to be closed instead, or nil. Closing a
// connection takes time with TLS, so that nothing is closed under the lock.
func (p *pool) add(c *conn) (extra *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return c
	}
	if len(p.idle) >= p.max { // the oldest one may belong to a tenant that is gone
		extra = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, c)
	if p.reaper == nil {
		p.reaper = time.AfterFunc(p.keep, p.reap)
	}
	return extra
}

// reap closes the connections that have been idle for too long.
func (p *pool) reap() { closeAll(p.takeOld()) }

// takeOld removes and returns the connections that have been idle for too long.
func (p *pool) takeOld() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].kept) >= p.keep {
		n++
	}
	old := slices.Clone(p.idle[:n])
	if p.idle = slices.Delete(p.idle, 0, n); len(p.idle) == 0 {
		p.reaper = nil
	} else {
		p.reaper.Reset(p.keep - time.Since(p.idle[0].kept))
	}
	return old
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.Close()
	}
}

// retire closes the idle connections, and makes put close the others.
func (p *pool) retire() {
	p.mu.Lock()
	idle := p.idle
	p.retired, p.idle = true, nil
	p.mu.Unlock()
	closeAll(idle)
}
