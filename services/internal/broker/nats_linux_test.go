package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

// openOwnNATS starts a server with a user that has the permissions, and opens it.
func openOwnNATS(t *testing.T, permissions string) (*apitest.NATS, *natsBroker) {
	t.Helper()
	s := apitest.NewNATS(t)
	s.User = url.UserPassword("relay", "secret")
	s.Settings = fmt.Sprintf("authorization: {users: [{user: relay, password: secret, permissions: {%s}}]}", permissions)
	s.Start()
	b, err := Open(t.Context(), s.URL(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return s, b.(*natsBroker)
}

func TestNATS_ATopicThatNATSForbidsHasNoRouteAndOthersArePublished(t *testing.T) {
	_, b := openOwnNATS(t, `publish: {deny: ["onlyonce.audit.>"]}`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := b.Publish(ctx, made(t,
		outbox.Message{Topic: "audit.b"}, outbox.Message{Topic: "orders.created"}, outbox.Message{Topic: "audit.c"}, outbox.Message{Topic: "audit.b"}))
	if ctx.Err() != nil {
		t.Error("it waited for messages that the server does not acknowledge")
	}
	if !errors.Is(errs[0], outbox.ErrNoRoute) || errs[1] != nil || !errors.Is(errs[2], outbox.ErrNoRoute) || !errors.Is(errs[3], outbox.ErrNoRoute) {
		t.Errorf("got %v", errs)
	}
}

func TestNATS_MessagesThatAreNotAcknowledgedKeepUpNoLaterOnes(t *testing.T) {
	_, b := openOwnNATS(t, `publish: {deny: ["onlyonce.audit"]}`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list := make([]outbox.Message, asyncLimit+1, asyncLimit+2)
	for i := range list {
		list[i] = outbox.Message{Topic: "audit", Payload: []byte(fmt.Sprint(i))}
	}
	list = made(t, append(list, outbox.Message{Topic: "orders.created"})...)
	for range 2 {
		errs := b.Publish(ctx, list)
		for i, err := range errs[:asyncLimit+1] {
			if !errors.Is(err, outbox.ErrNoRoute) {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		if err := errs[asyncLimit+1]; err != nil {
			t.Fatalf("the message that the server permits: %v", err)
		}
	}
}

func TestNATS_ABrokerGoesOnAfterTheServerRejectedItsUserForAWhile(t *testing.T) {
	s, b := openOwnNATS(t, "")
	list := made(t, outbox.Message{Topic: "t"})
	publish(t, b, list)
	address := b.conn.ConnectedAddr()
	s.Kill()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		rejectUser(t, l)
	}
	l.Close()
	s.Start()
	eventually(t, "it is published", func() bool {
		return publishSoon(t, b, list) == nil || b.conn.IsClosed()
	})
	if b.conn.IsClosed() {
		t.Error("the connection was closed for good")
	}
}

// The client gets no error for a consumer that went while it was not connected.
func TestNATS_AConsumerGoesOnAfterTheServerLostItsData(t *testing.T) {
	s, b := openOwnNATS(t, "")
	r := receive(t, b, "one", nil)
	publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("before")}))
	eventually(t, "the first came", func() bool { return r.has("before") })
	s.Kill()
	s.Settings += fmt.Sprintf("\njetstream: {store_dir: %q}", t.TempDir())
	s.Start()
	list := made(t, outbox.Message{Topic: "t", Payload: []byte("after")})
	eventually(t, "it is published", func() bool { return publishSoon(t, b, list) == nil })
	eventually(t, "the second came", func() bool { return r.has("after") })
}

func TestNATS_AConsumerGoesOnAfterItsStreamWasDeleted(t *testing.T) {
	_, b := openOwnNATS(t, "")
	r := receive(t, b, "one", nil)
	publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("before")}))
	eventually(t, "the first came", func() bool { return r.has("before") })
	if err := b.js.DeleteStream(t.Context(), b.cfg.Name); err != nil {
		t.Fatal(err)
	}
	list := made(t, outbox.Message{Topic: "t", Payload: []byte("after")})
	eventually(t, "it is published", func() bool { return errors.Join(b.Publish(t.Context(), list)...) == nil })
	eventually(t, "the second came", func() bool { return r.has("after") })
}

// A stream that is created again numbers its messages from 1 again, as acknowledgments do.
func TestNATS_AnAcknowledgmentOfAStreamThatWasDeletedIsNoneOfTheNewOnes(t *testing.T) {
	s, b := openOwnNATS(t, "")
	began, end := make(chan struct{}), make(chan struct{})
	stop := consume(t, b, "one", func(context.Context, outbox.Message) error {
		close(began)
		<-end
		return nil
	})
	publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("old")}))
	<-began
	if err := b.js.DeleteStream(t.Context(), b.cfg.Name); err != nil {
		t.Fatal(err)
	}
	other, err := Open(t.Context(), s.URL(), Config{}) // creates the stream again
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	results := make(chan chan error)
	consume(t, other, "one", func(context.Context, outbox.Message) error {
		result := make(chan error)
		results <- result
		return <-result
	})
	publish(t, other, made(t, outbox.Message{Topic: "t", Payload: []byte("new")}))
	first := <-results
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	close(end) // and the old message is acknowledged
	<-ended
	if err := b.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	first <- errors.New("no")
	select {
	case second := <-results:
		second <- nil
	case <-time.After(patience):
		t.Error("the new message does not come again")
	}
}

// A replacing JetStream deletes the stream and creates it again right after it was read for the
// first time.
type replacing struct {
	jetstream.JetStream
	t    *testing.T
	once sync.Once
}

func (r *replacing) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := r.JetStream.Stream(ctx, name)
	r.once.Do(func() {
		if err := r.DeleteStream(ctx, name); err != nil {
			r.t.Error(err)
		}
		if _, err := r.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: stream.CachedInfo().Config.Subjects}); err != nil {
			r.t.Error(err)
		}
	})
	return stream, err
}

func TestNATS_AConsumerIsNamedAfterItsStreamAlsoIfThatWasCreatedAgainMeanwhile(t *testing.T) {
	_, b := openOwnNATS(t, "")
	js := b.js
	b.js = &replacing{JetStream: js, t: t}
	r := &receiver{t: t, got: make(map[string][]string)}
	r.stop = consume(t, b, "one", r.handle)
	eventually(t, "the only consumer has the name of the new stream", func() bool {
		stream, err := js.Stream(t.Context(), b.cfg.Name)
		if err != nil {
			return false
		}
		var names []string
		for name := range stream.ConsumerNames(t.Context()).Name() {
			names = append(names, name)
		}
		return slices.Equal(names, []string{durable(stream, "one")})
	})
	publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("new")}))
	eventually(t, "it came", func() bool { return r.has("new") })
}

func TestNATS_ABrokerGoesOnAfterTheServerWasGivenADomain(t *testing.T) {
	s, b := openOwnNATS(t, "")
	publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("before")}))
	s.Kill()
	s.Settings += fmt.Sprintf("\njetstream: {store_dir: %q, domain: hub}", t.TempDir())
	s.Start()
	list := made(t, outbox.Message{Topic: "t", Payload: []byte("after")})
	eventually(t, "it is published", func() bool { return publishSoon(t, b, list) == nil })
}

// While anybody subscribes to a subject, the server does not say that no stream takes it.
func TestNATS_AStreamThatIsGoneIsCreatedAgainWhileOthersSubscribeToItsSubjects(t *testing.T) {
	_, b := openOwnNATS(t, "")
	subscribe(t, b)
	if err := b.js.DeleteStream(t.Context(), b.cfg.Name); err != nil {
		t.Fatal(err)
	}
	list := made(t, outbox.Message{Topic: "t"})
	eventually(t, "it is published", func() bool { return publishSoon(t, b, list) == nil })
}

func TestNATS_ATopicThatNoStreamTakesHasNoRouteWhileOthersSubscribeToIt(t *testing.T) {
	_, b := openOwnNATS(t, "")
	subscribe(t, b)
	if _, err := b.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: b.cfg.Name, Subjects: []string{b.cfg.Name + ".orders.*"}}); err != nil {
		t.Fatal(err)
	}
	publish(t, b, made(t, outbox.Message{Topic: "orders.created"}))
	list := made(t, outbox.Message{Topic: "audit"})
	eventually(t, "it has no route", func() bool { return errors.Is(publishSoon(t, b, list), outbox.ErrNoRoute) })
}

// subscribe subscribes to all topics, as any client of the server may.
func subscribe(t *testing.T, b *natsBroker) {
	t.Helper()
	_, err := b.conn.Subscribe(b.cfg.subjects(), func(*nats.Msg) {})
	if err = errors.Join(err, b.conn.Flush()); err != nil {
		t.Fatal(err)
	}
}

// publishSoon waits a moment for the acknowledgments.
func publishSoon(t *testing.T, b Broker, list []outbox.Message) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return errors.Join(b.Publish(ctx, list)...)
}

// Another stream may take the subjects while the broker's own is gone. Nobody hands its messages
// to the consumer.
func TestNATS_AMessageThatAnotherStreamAcknowledgedIsNotPublished(t *testing.T) {
	_, b := openOwnNATS(t, "")
	r := receive(t, b, "one", nil)
	r.stop()
	if err := b.js.DeleteStream(t.Context(), b.cfg.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "archive", Subjects: []string{"onlyonce.>"}}); err != nil {
		t.Fatal(err)
	}
	list := made(t, outbox.Message{Topic: "t", Payload: []byte("a")})
	if err := errors.Join(b.Publish(t.Context(), list)...); !errors.Is(err, outbox.ErrUnavailable) || !strings.Contains(err.Error(), "archive") {
		t.Errorf("got %v, want an error that names the other stream", err)
	}
	if err := b.js.DeleteStream(t.Context(), "archive"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is published", func() bool { return errors.Join(b.Publish(t.Context(), list)...) == nil })
	r = receive(t, b, "one", nil)
	eventually(t, "it came", func() bool { return r.has("a") })
}

// Through a leafnode, a stream of the same name in another JetStream domain gets the messages, too.
func TestNATS_AMessageThatAnotherDomainAcknowledgedIsNotPublished(t *testing.T) {
	hub, leaf := apitest.NewNATS(t), apitest.NewNATS(t)
	link := hub.FreeAddress()
	hub.Settings = fmt.Sprintf("jetstream: {store_dir: %q, domain: hub}\nleafnodes: {listen: %q}", t.TempDir(), link)
	leaf.Settings = fmt.Sprintf("jetstream: {store_dir: %q, domain: leaf}\nleafnodes: {remotes: [{url: %q}]}", t.TempDir(), "nats://"+link)
	hub.Start()
	leaf.Start()
	open := func(s *apitest.NATS) *natsBroker {
		b, err := Open(t.Context(), s.URL(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b.(*natsBroker)
	}
	other, b := open(hub), open(leaf)
	stored := func(b *natsBroker) uint64 {
		stream, err := b.js.Stream(t.Context(), b.cfg.Name)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Msgs
	}
	eventually(t, "the hub gets a message that is published at the leafnode", func() bool {
		_ = b.conn.Publish("onlyonce.t", nil)
		return stored(other) > 0
	})
	if err := b.js.DeleteStream(t.Context(), b.cfg.Name); err != nil {
		t.Fatal(err)
	}
	list := made(t, outbox.Message{Topic: "t", Payload: []byte("a")})
	if err := errors.Join(b.Publish(t.Context(), list)...); !errors.Is(err, outbox.ErrUnavailable) || !strings.Contains(err.Error(), "hub") {
		t.Errorf("got %v, want an error that names the other domain", err)
	}
}

// rejectUser accepts a connection as a NATS server that knows no user.
func rejectUser(t *testing.T, l net.Listener) {
	t.Helper()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("it does not connect again: %v", err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"max_payload\":1048576,\"headers\":true,\"auth_required\":true}\r\n")
	from := bufio.NewReader(conn)
	for range 2 { // CONNECT and PING
		if _, err := from.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprint(conn, "-ERR 'Authorization Violation'\r\n")
}

// The relay deletes messages that the stream has acknowledged, so nothing counts as published that a stream
// acknowledged which has become one that loses it.
func TestNATS_AStreamThatBeginsToLoseWhatItAcknowledgedIsRejectedUntilItIsRepaired(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *natsBroker, jetstream.StreamConfig){
		"changed": func(t *testing.T, b *natsBroker, c jetstream.StreamConfig) {
			c.MaxMsgs = 1
			if _, err := b.js.UpdateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			b.checkedAt = time.Now().Add(-checkEvery)
		},
		"created again": func(t *testing.T, b *natsBroker, c jetstream.StreamConfig) {
			if err := b.js.DeleteStream(t.Context(), c.Name); err != nil {
				t.Fatal(err)
			}
			c.Storage = jetstream.MemoryStorage
			if _, err := b.js.CreateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := openOwnNATS(t, "")
			publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("before")}))
			stream, err := b.js.Stream(t.Context(), b.cfg.Name)
			if err != nil {
				t.Fatal(err)
			}
			good := stream.CachedInfo().Config
			change(t, b, good)
			list := made(t, outbox.Message{Topic: "t", Payload: []byte("a")}, outbox.Message{Topic: "t", Payload: []byte("b")})
			for range 2 {
				for i, err := range b.Publish(t.Context(), list) {
					if !errors.Is(err, outbox.ErrUnavailable) || !strings.Contains(err.Error(), "can't be used") {
						t.Errorf("message %d: got %v, want an error that says that the stream can't be used", i, err)
					}
				}
			}
			if err := b.js.DeleteStream(t.Context(), b.cfg.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := b.js.CreateStream(t.Context(), good); err != nil {
				t.Fatal(err)
			}
			publish(t, b, list)
			r := receive(t, b, "one", nil)
			eventually(t, "both came", func() bool { return r.has("a") && r.has("b") })
		})
	}
}
