package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// An amqpLink is a connection to RabbitMQ that is opened again after it broke.
type amqpLink struct {
	address string

	mu     sync.Mutex
	conn   *amqpConn // nil: there is none
	closed bool
}

// An amqpConn is one connection of a link.
type amqpConn struct {
	*amqp.Connection
	wire    net.Conn
	blocked atomic.Pointer[string] // why the server reads nothing from this connection; nil: it reads
}

var errClosed = errors.New("the broker was closed")

// handshake is how long the server may take to accept a new connection, or to close
// one.
const handshake = 5 * time.Second

// channel opens a channel, on a new connection if the last one broke. It may block
// until sever is called, because a server that reads nothing does not respond.
func (l *amqpLink) channel(exchange string) (*amqp.Channel, error) {
	conn, err := l.connect()
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return nil, errors.Join(err, ch.Close())
	}
	return ch, nil
}

func (l *amqpLink) connect() (*amqpConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, nil
	}
	c := new(amqpConn)
	dial := func(network, address string) (conn net.Conn, err error) {
		c.wire, err = amqp.DefaultDial(handshake)(network, address)
		return c.wire, err
	}
	conn, err := amqp.DialConfig(l.address, amqp.Config{Heartbeat: 10 * time.Second, Locale: "en_US", Dial: dial})
	if err != nil {
		return nil, err
	}
	c.Connection = conn
	notices := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	go func() {
		for notice := range notices { // until the connection ends
			c.blocked.Store(nil)
			if notice.Active {
				c.blocked.Store(&notice.Reason)
			}
		}
	}()
	l.conn = c
	return c, nil
}

// isOpen reports whether there is a connection that has not ended.
func (l *amqpLink) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && !l.conn.IsClosed()
}

// frameSize returns the largest frame, in bytes, that the server accepts on the connection, or 0
// if there is no connection or no limit.
func (l *amqpLink) frameSize() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0
	}
	return l.conn.Config.FrameSize
}

// taking returns an error while the server reads nothing from the connection. RabbitMQ
// does this to every connection that publishes when it is short of memory or disk.
func (l *amqpLink) taking() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil
	}
	if reason := l.conn.blocked.Load(); reason != nil {
		return fmt.Errorf("RabbitMQ accepts no messages: %s", *reason)
	}
	return nil
}

// sever closes the connection without notifying the server, and so ends every call on
// it. The next channel is on a new connection, even if the client has not noticed yet that
// this one ended.
func (l *amqpLink) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.wire.Close()
		l.conn = nil
	}
}

// within calls sever if ctx ends before done is called.
func (l *amqpLink) within(ctx context.Context) (done func() bool) {
	return context.AfterFunc(ctx, l.sever)
}

// close closes the connection, even if the server does not respond. Messages that it
// has not confirmed are still in the outbox, and messages that were not acknowledged
// are still in their queues.
func (l *amqpLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn == nil || l.conn.IsClosed() {
		return
	}
	if l.conn.blocked.Load() != nil {
		_ = l.conn.wire.Close()
		return
	}
	late := time.AfterFunc(handshake, func() { _ = l.conn.wire.Close() })
	defer late.Stop()
	_ = l.conn.Close()
}
