//go:build linux

package faults

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A CuttingProxy forwards the connections of a store to its server. Once armed, it cuts a
// connection after a number of bytes in one direction. It can also delay everything.
type CuttingProxy struct {
	delay atomic.Int64 // nanoseconds between a read and the write of its bytes

	listener net.Listener
	done     sync.WaitGroup

	mu        sync.Mutex
	target    string                // the server's address; empty: new connections are rejected
	conns     map[net.Conn]net.Conn // a client's connection, and the one to the server
	forwarded [2]int                // bytes in each direction since the last Count
	trips     int                   // since the last RoundTrips
	armed     bool
	direction int // that is cut
	remaining int // bytes until the cut
	rejects   int // connections to reject after the cut
	rejecting int // connections still to reject
}

// The directions.
const (
	ToServer = iota
	ToClient
)

// Directions are their names.
var Directions = [...]string{ToServer: "to the server", ToClient: "to the client"}

// NewCuttingProxy returns a proxy that forwards to the address of a server. Close ends it.
func NewCuttingProxy(target string) (*CuttingProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &CuttingProxy{target: target, listener: l, conns: make(map[net.Conn]net.Conn)}
	p.done.Go(p.accept)
	return p, nil
}

// Address returns the address on which the proxy listens.
func (p *CuttingProxy) Address() string { return p.listener.Addr().String() }

// SetDelay delays everything that is read from now on by d.
func (p *CuttingProxy) SetDelay(d time.Duration) { p.delay.Store(int64(d)) }

// Close cuts all connections and stops listening.
func (p *CuttingProxy) Close() {
	p.listener.Close()
	p.SetTarget("")
	p.done.Wait()
}

// SetTarget cuts all connections and forwards new ones to another server. Without an
// address, it rejects new ones.
func (p *CuttingProxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
	for client, server := range p.conns {
		client.Close()
		server.Close()
	}
}

func (p *CuttingProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		if target == "" {
			client.Close()
			continue
		}
		server, err := net.Dial("tcp", target)
		if err != nil || !p.admit(target, client, server) {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		last := ToClient // the direction of the last bytes
		p.done.Go(func() { p.forward(ToServer, client, server, &last) })
		p.done.Go(func() { p.forward(ToClient, client, server, &last) })
	}
}

// admit reports whether a new connection is forwarded. It is not if it comes right after a
// cut that rejects further connections, or if the target has changed meanwhile.
func (p *CuttingProxy) admit(target string, client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if target != p.target {
		return false
	}
	if p.rejecting > 0 {
		p.rejecting--
		return false
	}
	p.conns[client] = server
	return true
}

// forward forwards bytes in one direction until either side ends.
func (p *CuttingProxy) forward(direction int, client, server net.Conn, last *int) {
	from, to := client, server
	if direction == ToClient {
		from, to = server, client
	}
	defer func() {
		client.Close()
		server.Close() // the server may still work on what it has received
		p.mu.Lock()
		delete(p.conns, client)
		p.mu.Unlock()
	}()
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if delay := p.delay.Load(); delay > 0 {
			time.Sleep(time.Duration(delay))
		}
		allowed, cut := p.allow(direction, n, last)
		if _, e := to.Write(buffer[:allowed]); e != nil || cut || err != nil {
			return
		}
	}
}

// allow returns how many of n bytes are forwarded, and whether the connection is cut after
// them.
func (p *CuttingProxy) allow(direction, n int, last *int) (allowed int, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forwarded[direction] += n
	if n > 0 {
		if direction == ToServer && *last == ToClient {
			p.trips++
		}
		*last = direction
	}
	if !p.armed || direction != p.direction || n == 0 {
		return n, false
	}
	if n < p.remaining {
		p.remaining -= n
		return n, false
	}
	p.armed, p.rejecting = false, p.rejects
	return p.remaining, true
}

// Arm makes the proxy cut after a number of bytes in a direction, and then reject a number
// of connections.
func (p *CuttingProxy) Arm(direction, bytes, rejects int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.direction, p.remaining, p.rejects, p.rejecting = true, direction, bytes, rejects, 0
}

// HasCut reports whether the proxy has cut a connection since it was armed.
func (p *CuttingProxy) HasCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.armed
}

// Disarm makes the proxy forward everything, and reports whether it had cut a connection.
func (p *CuttingProxy) Disarm() (cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut = !p.armed
	p.armed, p.rejecting = false, 0
	return cut
}

// Count returns how many bytes were forwarded in each direction since the last Count.
func (p *CuttingProxy) Count() (forwarded [2]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	forwarded, p.forwarded = p.forwarded, forwarded
	return forwarded
}

// RoundTrips returns how many times since its last call clients have sent something after
// the server had, or for the first time.
func (p *CuttingProxy) RoundTrips() (trips int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	trips, p.trips = p.trips, 0
	return trips
}
