package etcdserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
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
	from, to int // from may be none: it is not known
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
// reach it.
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
	l := &link{from: none, to: to, in: in, out: out}
	if !c.add(l) {
		return
	}
	defer c.remove(l)
	head, err := readHead(in)
	if err != nil || !c.identify(l, head) {
		return
	}
	if _, err := out.Write(head); err != nil {
		return
	}
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
	c.conns[l] = true
	return c.isolated != l.to
}

func (c *Cluster) remove(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, l)
}

// identify finds by the head of its first request from which server a link is, and reports
// whether it is not cut. A server names its own peer URL.
func (c *Cluster) identify(l *link, head []byte) bool {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		l.from = slices.IndexFunc(c.Servers, func(s *Server) bool { return r.Header.Get("X-PeerURLs") == "http://"+s.advertised })
	}
	return !c.cut(l)
}

// readHead reads the head of a request, and perhaps more.
func readHead(from io.Reader) (head []byte, err error) {
	part := make([]byte, 4<<10)
	for len(head) < 64<<10 {
		n, err := from.Read(part)
		head = append(head, part[:n]...)
		if err != nil || bytes.Contains(head, []byte("\r\n\r\n")) {
			return head, err
		}
	}
	return nil, errors.New("the head of a request does not end")
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
