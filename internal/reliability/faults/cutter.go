//go:build linux

package faults

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Cutter stands between a store and its server, and cuts the connection after
// so many bytes in one direction. It can also delay what it hands on.
type Cutter struct {
	late atomic.Int64 // nanoseconds by which everything is delayed

	listen net.Listener
	done   sync.WaitGroup

	mu       sync.Mutex
	server   string                // empty: there is none
	conns    map[net.Conn]net.Conn // of the clients, with theirs to the server
	passed   [2]int                // bytes in each direction since the last count
	turns    int                   // times that clients waited for the server since the last count
	armed    bool
	way      int // the direction that is cut
	left     int // bytes until the cut
	rejects  int // connections to reject after the cut
	rejected int // connections still to reject
}

// The directions.
const (
	ToServer = iota
	ToClient
)

// Directions are their names.
var Directions = [...]string{ToServer: "to the server", ToClient: "to the client"}

// NewCutter returns a cutter before a server's address. Close ends it.
func NewCutter(server string) (*Cutter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Cutter{server: server, listen: l, conns: make(map[net.Conn]net.Conn)}
	c.done.Go(c.accept)
	return c, nil
}

// Address is where the cutter listens.
func (c *Cutter) Address() string { return c.listen.Addr().String() }

// Delay makes everything later by so much from now on.
func (c *Cutter) Delay(d time.Duration) { c.late.Store(int64(d)) }

// Close cuts all connections, and listens no more.
func (c *Cutter) Close() {
	c.listen.Close()
	c.Lead("")
	c.done.Wait()
}

// Lead cuts all connections and leads new ones to another server; without an address
// it rejects them.
func (c *Cutter) Lead(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
	for client, server := range c.conns {
		client.Close()
		server.Close()
	}
}

func (c *Cutter) accept() {
	for {
		client, err := c.listen.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		address := c.server
		c.mu.Unlock()
		if address == "" {
			client.Close()
			continue
		}
		server, err := net.Dial("tcp", address)
		if err != nil || !c.admit(address, client, server) {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		last := ToClient // the direction of what passed last
		c.done.Go(func() { c.pass(ToServer, client, server, &last) })
		c.done.Go(func() { c.pass(ToClient, client, server, &last) })
	}
}

// admit rejects the connections that come right after a cut, if it is told to, and
// those to a server to which no more are led.
func (c *Cutter) admit(address string, client, server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if address != c.server {
		return false
	}
	if c.rejected > 0 {
		c.rejected--
		return false
	}
	c.conns[client] = server
	return true
}

// pass hands bytes on in one direction until either side ends.
func (c *Cutter) pass(way int, client, server net.Conn, last *int) {
	from, to := client, server
	if way == ToClient {
		from, to = server, client
	}
	defer func() {
		client.Close()
		server.Close() // what it got it still works on
		c.mu.Lock()
		delete(c.conns, client)
		c.mu.Unlock()
	}()
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if late := c.late.Load(); late > 0 {
			time.Sleep(time.Duration(late))
		}
		allowed, cut := c.allow(way, n, last)
		if _, e := to.Write(buffer[:allowed]); e != nil || cut || err != nil {
			return
		}
	}
}

// allow says how many of n bytes pass, and whether the connection is cut after
// them.
func (c *Cutter) allow(way, n int, last *int) (allowed int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed[way] += n
	if n > 0 {
		if way == ToServer && *last == ToClient {
			c.turns++
		}
		*last = way
	}
	if !c.armed || way != c.way || n == 0 {
		return n, false
	}
	if n < c.left {
		c.left -= n
		return n, false
	}
	c.armed, c.rejected = false, c.rejects
	return c.left, true
}

// Arm makes the cutter cut after so many bytes, and reject so many connections
// after that.
func (c *Cutter) Arm(way, after, rejects int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.way, c.left, c.rejects, c.rejected = true, way, after, rejects, 0
}

// HasCut says whether the cutter has cut since it was armed.
func (c *Cutter) HasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.armed
}

// Rest lets everything pass, and says whether it had cut.
func (c *Cutter) Rest() (cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut = !c.armed
	c.armed, c.rejected = false, 0
	return cut
}

// Count returns what has passed since the last count.
func (c *Cutter) Count() (passed [2]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed, c.passed = c.passed, passed
	return passed
}

// RoundTrips returns how many times clients have sent something after the server had, or for
// the first time, since it was last called.
func (c *Cutter) RoundTrips() (turns int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	turns, c.turns = c.turns, 0
	return turns
}
