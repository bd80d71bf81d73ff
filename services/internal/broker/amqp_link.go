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

// An amqpLink is a connection to RabbitMQ that is made again after it broke.
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
	blocked atomic.Pointer[string] // why the server reads nothing from this connection; nil: it does
}

var errClosed = errors.New("the broker was closed")

// handshake is how long the server may take to answer a new connection, or the end of
// one.
const handshake = 5 * time.Second

// channel opens a channel, on a new connection if the last one broke. It may take until
// sever is called: a server that reads nothing from a connection answers nothing.
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

// taking returns an error while the server reads nothing from the connection. RabbitMQ
// does so when it is short of memory or of disk, to every connection that publishes.
func (l *amqpLink) taking() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil
	}
	if reason := l.conn.blocked.Load(); reason != nil {
		return fmt.Errorf("RabbitMQ takes no messages: %s", *reason)
	}
	return nil
}

// sever ends the connection without a word to the server, and so every call on it.
func (l *amqpLink) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.wire.Close()
	}
}

// within severs the link if ctx ends before done is called.
func (l *amqpLink) within(ctx context.Context) (done func() bool) {
	return context.AfterFunc(ctx, l.sever)
}

// close ends the connection, also if the server does not answer: what it has not
// confirmed is still in the outbox, and what was not acknowledged is still in its queue.
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
