package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// An alarm stands before a RabbitMQ and does to each connection what the server itself
// does when it is short of memory: from the first message that is published on it, it
// reads nothing more, until there is memory again. It also rejects what the server
// rejects from a user without permission for a topic, and keeps from the server what the
// server would not confirm, because the queue for the topic has lost most of its replicas.
type alarm struct {
	listener    net.Listener
	server      string
	forbidden   string // topic
	unconfirmed string // topic; later messages on its channel are not confirmed, either

	mu       sync.Mutex
	over     chan struct{}     // closed: nothing is short
	withheld func([]byte) bool // frames that the client does not get; nil: none
}

// withhold keeps frames from the client from now on.
func (a *alarm) withhold(frames func([]byte) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withheld = frames
}

func (a *alarm) withholds(frame []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.withheld != nil && a.withheld(frame)
}

func newAlarm(t *testing.T, server string) *alarm {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &alarm{listener: l, server: server, over: make(chan struct{})}
	close(a.over)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go a.serve(client)
		}
	}()
	return a
}

// begin is the alarm's, and end its end.
func (a *alarm) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = make(chan struct{})
}

func (a *alarm) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.over)
}

func (a *alarm) state() chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over
}

func (a *alarm) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", a.server)
	if err != nil {
		return
	}
	defer server.Close()
	var writing sync.Mutex // of one frame
	toClient := func(frame []byte) error {
		writing.Lock()
		defer writing.Unlock()
		_, err := client.Write(frame)
		return err
	}
	var ending sync.Map // channels that the server was told to close for the client
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer client.Close()
		for {
			frame, err := readFrame(server)
			if err != nil {
				return
			}
			if _, ok := ending.Load(channelOf(frame)); ok {
				if isMethod(frame, 20, 41) { // channel.close-ok
					ending.Delete(channelOf(frame))
				}
			} else if !a.withholds(frame) && toClient(frame) != nil {
				return
			}
		}
	}()
	if _, err := io.CopyN(server, client, int64(len("AMQP0091"))); err != nil {
		return
	}
	closed := make(map[uint16]bool)      // channels for which the client is to send a channel.close-ok
	unconfirmed := make(map[uint16]bool) // channels of which nothing that is published goes on
	for {
		frame, err := readFrame(client)
		if err != nil {
			return
		}
		if channel := channelOf(frame); closed[channel] {
			closed[channel] = !isMethod(frame, 20, 41)
			continue
		} else if a.forbidden != "" && isMethod(frame, 60, 40) && routingKey(frame) == a.forbidden {
			closed[channel] = true
			ending.Store(channel, nil)
			_ = toClient(method(channel, 20, 40, "\x01\x93\x0eACCESS_REFUSED\x00\x3c\x00\x28")) // channel.close, 403
			frame = method(channel, 20, 40, "\x00\xc8\x00\x00\x00\x00\x00")
		}
		if a.unconfirmed != "" && isMethod(frame, 60, 40) && routingKey(frame) == a.unconfirmed {
			unconfirmed[channelOf(frame)] = true
		}
		if unconfirmed[channelOf(frame)] && !isMethod(frame, 20, 40) {
			continue
		}
		delete(unconfirmed, channelOf(frame))
		if over := a.state(); isMethod(frame, 60, 40) && !isClosed(over) { // basic.publish
			_ = toClient(method(0, 10, 60, "\x06memory")) // connection.blocked
			select {
			case <-over:
			case <-ended:
				return
			}
			_ = toClient(method(0, 10, 61, "")) // connection.unblocked
		}
		if _, err := server.Write(frame); err != nil {
			return
		}
	}
}

// frameHead is the length of a frame's type, channel and size.
const frameHead = 7

func readFrame(from io.Reader) ([]byte, error) {
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, int(binary.BigEndian.Uint32(head[3:]))+1)...)
	_, err := io.ReadFull(from, frame[frameHead:])
	return frame, err
}

func isMethod(frame []byte, class, id uint16) bool {
	return frame[0] == 1 && binary.BigEndian.Uint16(frame[frameHead:]) == class && binary.BigEndian.Uint16(frame[frameHead+2:]) == id
}

func channelOf(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[1:]) }

// routingKey is that of a basic.publish.
func routingKey(frame []byte) string {
	rest := frame[frameHead+6:]
	rest = rest[1+rest[0]:] // after the exchange
	return string(rest[1 : 1+rest[0]])
}

func method(channel, class, id uint16, arguments string) []byte {
	frame := binary.BigEndian.AppendUint16([]byte{1}, channel)
	frame = binary.BigEndian.AppendUint32(frame, uint32(4+len(arguments)))
	frame = binary.BigEndian.AppendUint16(frame, class)
	frame = binary.BigEndian.AppendUint16(frame, id)
	return append(append(frame, arguments...), 0xCE)
}

// eachAlarm opens the RabbitMQ of a test through an alarm.
func eachAlarm(t *testing.T, test func(t *testing.T, b *amqpBroker, a *alarm)) {
	each(t, func(t *testing.T, b Broker) {
		direct, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: it stops reading from publishers")
		}
		u, err := url.Parse(direct.outgoing.address)
		if err != nil {
			t.Fatal(err)
		}
		a := newAlarm(t, u.Host)
		u.Host = a.listener.Addr().String()
		through, err := Open(t.Context(), u.String(), direct.cfg)
		if err != nil {
			t.Fatal(err)
		}
		test(t, through.(*amqpBroker), a)
	})
}

func TestAlarm_ARabbitMQThatIsShortOfMemoryIsEmptiedByItsConsumers(t *testing.T) {
	eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
		receive(t, b, "one", nil).stop()
		const n = 600
		var list []outbox.Message
		for i := range n {
			list = append(list, outbox.Message{Topic: "t", Payload: []byte(fmt.Sprint(i))})
		}
		publish(t, b, made(t, list...))
		a.begin()
		more := made(t, outbox.Message{Topic: "t", Payload: []byte("more")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := errors.Join(b.Publish(ctx, more)...); !errors.Is(err, outbox.ErrUnavailable) {
			t.Fatal(err)
		}
		r := receive(t, b, "one", nil)
		eventually(t, "all came that were in the queue", func() bool { return r.count() >= n })
		r.stop()
		a.end()
		eventually(t, "it is published", func() bool { return errors.Join(b.Publish(t.Context(), more)...) == nil })
		r = receive(t, b, "one", nil)
		eventually(t, "it came", func() bool { return r.has("more") })
		r.stop()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAlarm_WhatARabbitMQDoesNotReadEndsWithItsContextAndSaysWhy(t *testing.T) {
	eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
		a.begin()
		defer a.end()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		large := made(t, outbox.Message{Topic: "t", Payload: make([]byte, 64<<20)}) // more than the buffers in between take
		if err := errors.Join(b.Publish(ctx, large)...); !errors.Is(err, outbox.ErrUnavailable) {
			t.Fatal(err)
		}
		small := made(t, outbox.Message{Topic: "t"})
		eventually(t, "the error says why", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := errors.Join(b.Publish(ctx, small)...)
			if !errors.Is(err, outbox.ErrUnavailable) {
				t.Fatal(err)
			}
			return strings.Contains(err.Error(), "memory")
		})
		if err := b.Close(); err != nil { // while nobody reads
			t.Error(err)
		}
	})
}

func TestAlarm_ATopicThatRabbitMQForbidsHasNoRouteAndOthersArePublished(t *testing.T) {
	eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
		a.forbidden = "forbidden"
		r := receive(t, b, "one", nil)
		var list []outbox.Message
		for i := range 99 {
			list = append(list, outbox.Message{Topic: []string{"a", "forbidden", "b"}[i%3], Payload: []byte(fmt.Sprint(i))})
		}
		list = made(t, list...)
		for i, err := range b.Publish(t.Context(), list) {
			if forbidden := list[i].Topic == "forbidden"; forbidden != (err != nil) || forbidden != errors.Is(err, outbox.ErrNoRoute) {
				t.Errorf("%s: %v", list[i].Topic, err)
			}
		}
		eventually(t, "the others came", func() bool { return r.count() >= 66 })
		r.stop()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The queue of a topic may be without a leader while all others work.
func TestAlarm_WhatRabbitMQDoesNotConfirmHasNoRouteAndKeepsUpNoOthers(t *testing.T) {
	eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
		a.unconfirmed = "unconfirmed"
		r := receive(t, b, "one", nil)
		for _, topics := range [][]string{{"a", "unconfirmed"}, {"unconfirmed"}, {"unconfirmed", "unconfirmed"}} {
			var list []outbox.Message
			for _, topic := range topics {
				list = append(list, outbox.Message{Topic: topic, Payload: []byte(topic)})
			}
			list = made(t, list...)
			var wrong error
			for timeout := time.Second; timeout < patience; timeout *= 4 { // which the disk may need to confirm the others
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				wrong = nil
				for i, err := range b.Publish(ctx, list) {
					if topics[i] == "a" && err != nil || topics[i] != "a" && !errors.Is(err, outbox.ErrNoRoute) {
						wrong = fmt.Errorf("of %v, message %d: %w", topics, i, err)
					}
				}
				if cancel(); wrong == nil {
					break
				}
			}
			if wrong != nil {
				t.Error(wrong)
			}
		}
		publish(t, b, made(t, outbox.Message{Topic: "b", Payload: []byte("b")}))
		eventually(t, "the others came", func() bool { return r.has("a") && r.has("b") })
		r.stop()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A server may go on sending heartbeats, and yet not respond to a call: no heartbeat is missed then.
var responses = []struct {
	name      string
	class, id uint16
}{
	{"queue.declare-ok", 50, 11},
	{"basic.consume-ok", 60, 21},
	{"channel.open-ok", 20, 11},
	{"channel.close-ok", 20, 41},
	{"exchange.declare-ok", 40, 11},
	{"queue.bind-ok", 50, 21},
	{"basic.qos-ok", 60, 11},
}

func TestAlarm_AConsumerWhoseCallRabbitMQDoesNotRespondToEndsWithItsContext(t *testing.T) {
	for _, response := range responses {
		t.Run(response.name, func(t *testing.T) {
			t.Parallel()
			eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
				receive(t, b, "one", nil).stop()
				withheld := make(chan struct{}, 1)
				a.withhold(func(frame []byte) bool {
					if !isMethod(frame, response.class, response.id) {
						return false
					}
					select {
					case withheld <- struct{}{}:
					default:
					}
					return true
				})
				r := begin(t, b, "one", nil)
				<-withheld
				r.stop()
				a.withhold(nil)
			})
		})
	}
}

func TestAlarm_AConsumerGoesOnAfterRabbitMQDidNotRespondToACall(t *testing.T) {
	needs.Time(t)
	for _, response := range responses[:2] {
		t.Run(response.name, func(t *testing.T) {
			t.Parallel()
			eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
				receive(t, b, "one", nil).stop()
				once := false
				a.withhold(func(frame []byte) bool {
					withheld := !once && isMethod(frame, response.class, response.id)
					once = once || withheld
					return withheld
				})
				r := begin(t, b, "one", nil)
				publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("a")}))
				eventually(t, "it came", func() bool { return r.has("a") })
				r.stop()
			})
		})
	}
}

func TestAlarm_AConsumerThatBindsItsQueueAgainInVainEndsWithItsContext(t *testing.T) {
	needs.Time(t)
	eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
		r := receive(t, b, "one", nil)
		publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("a")}))
		eventually(t, "it came", func() bool { return r.has("a") })
		withheld := make(chan struct{}, 1)
		a.withhold(func(frame []byte) bool {
			if !isMethod(frame, 50, 11) { // queue.declare-ok
				return false
			}
			select {
			case withheld <- struct{}{}:
			default:
			}
			return true
		})
		<-withheld
		r.stop()
	})
}

func TestAlarm_ABrokerIsNotOpenedWhileRabbitMQDoesNotRespond(t *testing.T) {
	needs.Time(t)
	eachAlarm(t, func(t *testing.T, b *amqpBroker, a *alarm) {
		receive(t, b, "one", nil).stop()
		a.withhold(func(frame []byte) bool { return isMethod(frame, 20, 11) }) // channel.open-ok
		if other, err := Open(t.Context(), b.outgoing.address, b.cfg); err == nil {
			t.Errorf("opened %v", other)
		}
		a.withhold(nil)
	})
}
