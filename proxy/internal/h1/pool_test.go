package h1

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A stuckConn is a connection whose Close waits, as that of TLS does if its peer reads nothing.
type stuckConn struct {
	net.Conn
	closed chan struct{}
}

func (c stuckConn) Close() error {
	<-c.closed
	return nil
}

// With TLS, closing a connection takes up to five seconds.
func TestPool_AConnectionThatIsClosedDelaysNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		closes func(p *pool)
		after  time.Duration
	}{
		"there are too many":      {func(p *pool) { p.put(&conn{owner: "b", Conn: p.idle[0].Conn}) }, 0},
		"it was idle for long":    {func(*pool) {}, time.Minute},
		"the upstream is retired": {(*pool).retire, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck := stuckConn{closed: make(chan struct{})}
				p := &pool{max: 1, keep: time.Minute}
				p.put(&conn{owner: "a", Conn: stuck})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					c.closes(p)
				}()
				time.Sleep(c.after)
				synctest.Wait() // until the connection is being closed
				if !p.mu.TryLock() {
					t.Error("the pool is locked")
				} else {
					p.mu.Unlock()
				}
				close(stuck.closed)
				<-ended
				p.retire()
			})
		})
	}
}
