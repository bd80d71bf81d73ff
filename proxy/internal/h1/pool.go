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
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		c.Close()
		return
	}
	if len(p.idle) >= p.max { // close the oldest one, which may belong to a tenant that is gone
		p.idle[0].Close()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, c)
	if p.reaper == nil {
		p.reaper = time.AfterFunc(p.keep, p.reap)
	}
}

// reap closes the connections that have been idle for too long.
func (p *pool) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].kept) >= p.keep {
		p.idle[old].Close()
		old++
	}
	n := copy(p.idle, p.idle[old:])
	clear(p.idle[n:])
	if p.idle = p.idle[:n]; n == 0 {
		p.reaper = nil
		return
	}
	p.reaper.Reset(p.keep - time.Since(p.idle[0].kept))
}

// retire closes the idle connections, and makes put close the others.
func (p *pool) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	for _, c := range p.idle {
		c.Close()
	}
	clear(p.idle)
	p.idle = p.idle[:0]
}
