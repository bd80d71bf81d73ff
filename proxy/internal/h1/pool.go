package h1

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A pool has the idle connections to an upstream, the youngest last.
type pool struct {
	max  int
	keep time.Duration

	mu      sync.Mutex
	idle    []*conn
	reaper  *time.Timer // nil: not set
	retired bool
}

// take returns an idle connection of the owner that still stands, and on which
// nothing has come that nobody asked for; or nil.
func (p *pool) take(ctx context.Context, owner string) *conn {
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

// youngest removes the owner's youngest connection, or returns nil.
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

// put keeps a connection whose answer was read to its end.
func (p *pool) put(c *conn) {
	c.clock.ctx = nil
	if cap(c.in) > mostIn {
		c.in = make([]byte, 0, firstIn)
	}
	c.kept = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		c.Close()
		return
	}
	if len(p.idle) >= p.max { // the oldest makes room, for it may be of a tenant that has gone
		p.idle[0].Close()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, c)
	if p.reaper == nil {
		p.reaper = time.AfterFunc(p.keep, p.reap)
	}
}

// reap closes what has been idle for too long.
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

// retire closes all connections once they are idle.
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
