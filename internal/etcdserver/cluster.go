package etcdserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

// A Cluster is some servers that keep the records together. They reach each other through
// ways that can be cut.
type Cluster struct {
	Servers []*Server

	listeners []net.Listener
	done      sync.WaitGroup

	mu       sync.Mutex
	isolated int // the number of the server that is cut off; none: nobody is
	conns    map[*link]bool
}

// none is the number of no server.
const none = -1

// A link is a connection from one server to another.
type link struct {
	from, to int // from may be none: it is not a server's, or its process has ended
	in, out  net.Conn
}

// StartCluster starts so many servers. The options are added to their command lines.
func StartCluster(size int, options ...string) (c *Cluster, err error) {
	for range 5 { // another process may take a port that was free
		if c, err = startCluster(size, options); err == nil {
			return c, nil
		}
		err = errors.Join(err, c.Close())
	}
	return nil, err
}

func startCluster(size int, options []string) (*Cluster, error) {
	c := &Cluster{isolated: none, conns: make(map[*link]bool)}
	var members []string
	for i := range size {
		s, err := newServer(fmt.Sprint("n", i), options)
		if err != nil {
			return c, err
		}
		c.Servers = append(c.Servers, s)
		if size > 1 {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return c, err
			}
			c.listeners = append(c.listeners, l)
			s.advertised = l.Addr().String()
		}
		members = append(members, s.name+"=http://"+s.advertised)
	}
	for i, l := range c.listeners {
		c.done.Go(func() { c.accept(i, l) })
	}
	for _, s := range c.Servers {
		s.cluster = strings.Join(members, ",")
		if err := s.Launch(); err != nil {
			return c, err
		}
	}
	for _, s := range c.Servers {
		if err := s.Await(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Clients returns the addresses where clients connect.
func (c *Cluster) Clients() (addresses []string) {
	for _, s := range c.Servers {
		addresses = append(addresses, s.Client)
	}
	return addresses
}

// Isolate cuts a server off from all others, in both directions, until Heal. Clients still
// reach it. It needs Linux.
func (c *Cluster) Isolate(server int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isolated = server
	for l := range c.conns {
		if c.cut(l) {
			l.in.Close()
			l.out.Close()
		}
	}
}

// Heal leads all servers to each other again.
func (c *Cluster) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isolated = none
}

// cut reports whether a link is to or from the server that is cut off, or may be. The caller
// has locked mu.
func (c *Cluster) cut(l *link) bool {
	return c.isolated != none && (l.to == c.isolated || l.from == c.isolated || l.from == none)
}

func (c *Cluster) accept(to int, l net.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		c.done.Go(func() { c.lead(to, in) })
	}
}

// lead leads a connection to a server.
func (c *Cluster) lead(to int, in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", c.Servers[to].Peer)
	if err != nil {
		return
	}
	defer out.Close()
	l := &link{from: c.owner(in.RemoteAddr().(*net.TCPAddr).Port), to: to, in: in, out: out}
	if !c.add(l) {
		return
	}
	defer c.remove(l)
	ended := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go pass(out, in)
	go pass(in, out)
	<-ended
}

// add takes a link in, unless it is cut.
func (c *Cluster) add(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut(l) {
		return false
	}
	c.conns[l] = true
	return true
}

func (c *Cluster) remove(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, l)
}

// owner returns the number of the server whose process has a connection from a port, or none.
// Not every request between servers says from which one it is, but Linux does.
func (c *Cluster) owner(port int) int {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return none
	}
	local := fmt.Sprintf("0100007F:%04X", port) // 127.0.0.1
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[1] != local {
			continue
		}
		socket := "socket:[" + fields[9] + "]"
		for i, s := range c.Servers {
			if s.has(socket) {
				return i
			}
		}
	}
	return none
}

// Close ends the ways and the servers, and deletes their data.
func (c *Cluster) Close() (err error) {
	for _, l := range c.listeners {
		l.Close()
	}
	for _, s := range c.Servers {
		err = errors.Join(err, s.Close())
	}
	c.mu.Lock()
	for l := range c.conns {
		l.in.Close()
		l.out.Close()
	}
	c.mu.Unlock()
	c.done.Wait()
	return err
}

// Start starts a server that is the only member of its cluster. The options are added to its
// command line.
func Start(options ...string) (*Server, error) {
	c, err := StartCluster(1, options...)
	if err != nil {
		return nil, err
	}
	return c.Servers[0], nil
}
