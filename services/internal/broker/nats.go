package broker

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A natsBroker has one stream, whose subjects are its name followed by the topics.
type natsBroker struct {
	conn       *nats.Conn
	js         jetstream.JetStream
	cfg        Config
	publishing sync.Mutex // one batch at a time; guards the next four
	domain     string     // the JetStream domain of the stream; empty: none
	sequence   uint64     // of the last message that the stream acknowledged
	checkedAt  time.Time  // when the stream's settings were last read
	unfit      error      // the problem with them; nil: none

	mu       sync.Mutex
	subjects map[string]chan struct{} // of the batch; each is closed if the server does not permit it
	logged   string                   // the last error that no call returned
	loggedAt time.Time
}

// asyncLimit is the largest number of published messages without an acknowledgment.
const asyncLimit = 2048

// subjects returns the pattern that matches the subjects of all topics.
func (c Config) subjects() string { return c.Name + ".>" }

func openNATS(ctx context.Context, address string, cfg Config) (*natsBroker, error) {
	b := &natsBroker{cfg: cfg}
	conn, err := nats.Connect(address, nats.Name("onlyonce"), nats.ErrorHandler(b.notice),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectWait(250*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(asyncLimit))
	if err != nil {
		conn.Close()
		return nil, err
	}
	b.conn, b.js = conn, js
	err = b.createStream(ctx)
	if b.checkedAt = time.Now(); err == nil {
		b.domain, err = readDomain(ctx, conn, cfg.Name)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

// readDomain returns the JetStream domain of a stream, which the client does not tell.
func readDomain(ctx context.Context, conn *nats.Conn, stream string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, domainWithin)
	defer cancel()
	response, err := conn.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.INFO."+stream, nil)
	if err != nil {
		return "", fmt.Errorf("read the domain of the stream %s: %w", stream, err)
	}
	var info struct {
		Error  *jetstream.APIError `json:"error"`
		Domain string              `json:"domain"`
	}
	if err := json.Unmarshal(response.Data, &info); err != nil {
		return "", fmt.Errorf("read the domain of the stream %s: %w", stream, err)
	}
	if info.Error != nil {
		return "", fmt.Errorf("read the domain of the stream %s: %w", stream, info.Error)
	}
	return info.Domain, nil
}

// domainWithin is how long the server may take to tell the domain of a stream.
const domainWithin = 5 * time.Second

// readDomainAgain reads the domain after another stream has acknowledged a message: the server may
// have been given another domain, or the stream may have been created in another one.
func (b *natsBroker) readDomainAgain(ctx context.Context) {
	domain, err := readDomain(ctx, b.conn, b.cfg.Name)
	if err != nil {
		slog.WarnContext(ctx, "broker: the JetStream domain of the NATS stream could not be read again", "stream", b.cfg.Name, "error", err)
		return
	}
	b.domain = domain
}

// createStream creates the stream, or checks the one that exists.
func (b *natsBroker) createStream(ctx context.Context) error {
	_, err := b.js.CreateStream(ctx, jetstream.StreamConfig{Name: b.cfg.Name, Subjects: []string{b.cfg.subjects()}, Storage: jetstream.FileStorage})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return checkStream(ctx, b.js, b.cfg.Name)
	}
	return err
}

// errUnfit is in the error of a stream that can lose a message that it acknowledged.
var errUnfit = errors.New("can't be used")

// checkStream returns errUnfit if the stream, which another program created or changed,
// can lose a message that it acknowledged, or acknowledges none. A stream may have an age
// limit, because nothing else deletes its messages.
func checkStream(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("read the configuration of the stream %s: %w", name, err)
	}
	c := stream.CachedInfo().Config
	var wrong []error
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{c.Storage != jetstream.FileStorage, "storage: memory loses its messages when the server stops: create the stream with file"},
		{c.PersistMode == jetstream.AsyncPersistMode, "persist_mode: async acknowledges a message before it is written: create the stream without it"},
		{c.NoAck, "no_ack: nothing tells whether the stream has a message: turn it off"},
		{c.Retention == jetstream.InterestPolicy, "retention: interest drops a message while there is no consumer: create the stream with limits"},
		{c.Discard == jetstream.DiscardOld && c.MaxMsgs > 0, "max_msgs: a full stream drops its oldest message, handled or not: set discard to new"},
		{c.Discard == jetstream.DiscardOld && c.MaxBytes > 0, "max_bytes: a full stream drops its oldest message, handled or not: set discard to new"},
		{c.MaxMsgsPerSubject > 0 && !c.DiscardNewPerSubject, "max_msgs_per_subject: a full topic drops its oldest message, handled or not: set discard to new, also per subject"},
		{c.Sealed, "sealed: the stream takes no message: create another"},
	} {
		if rule.broken {
			wrong = append(wrong, errors.New(rule.text))
		}
	}
	if wrong != nil {
		return fmt.Errorf("the stream %s, which another program created or changed, %w: %w", name, errUnfit, errors.Join(wrong...))
	}
	return nil
}

func (b *natsBroker) Redelivery() time.Duration { return b.cfg.AckWait }

func (b *natsBroker) Close() error {
	b.conn.Close()
	return nil
}

// Publish sends all messages and then waits for the acknowledgments. The stream drops
// a message that it received already within two minutes.
func (b *natsBroker) Publish(ctx context.Context, messages []outbox.Message) []error {
	b.publishing.Lock()
	defer b.publishing.Unlock()
	if b.unfit != nil {
		b.checkAgain(ctx)
	}
	errs := make([]error, 0, len(messages))
	if b.unfit == nil {
		for part := range slices.Chunk(messages, asyncLimit) {
			errs = append(errs, b.publish(ctx, part)...)
		}
		if time.Since(b.checkedAt) >= checkEvery {
			b.checkAgain(ctx)
		}
	}
	if b.unfit == nil {
		return errs
	}
	errs = append(errs, make([]error, len(messages)-len(errs))...)
	for i, err := range errs {
		errs[i] = cmp.Or(err, unavailable(b.unfit))
	}
	return errs
}

// checkEvery is how often the settings of the stream are read while messages are published, and
// checkWithin how long the server may take to tell them.
const (
	checkEvery  = 5 * time.Second
	checkWithin = 2 * time.Second
)

// checkAgain checks the stream again: another program may have changed it, or created it again,
// since it was opened. A server that does not tell the settings changes nothing, and a stream that
// has gone is created by the next attempt.
func (b *natsBroker) checkAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	err := checkStream(ctx, b.js, b.cfg.Name)
	b.checkedAt = time.Now()
	switch {
	case errors.Is(err, errUnfit):
		b.unfit = err
	case err == nil, errors.Is(err, jetstream.ErrStreamNotFound):
		b.unfit = nil
	}
}

func (b *natsBroker) publish(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	futures, denied := b.send(ctx, messages, errs)
	var unanswered []int
	abandoned := false
	for i, future := range futures {
		if future == nil {
			continue
		}
		var settled bool
		settled, errs[i] = b.await(ctx, future, denied[i])
		abandoned = abandoned || !settled
		if isUnanswered(errs[i]) {
			unanswered = append(unanswered, i)
		}
	}
	if abandoned { // the client would count them for as long as the connection lives
		b.js.CleanupPublisher()
	}
	b.explain(ctx, unanswered, errs)
	return errs
}

// send sends messages until ctx ends, and records an error for each message that it
// could not send. It returns, for each that it sent, the acknowledgment to come and a
// channel that is closed if the server does not permit the message's subject.
func (b *natsBroker) send(ctx context.Context, messages []outbox.Message, errs []error) ([]jetstream.PubAckFuture, []chan struct{}) {
	futures := make([]jetstream.PubAckFuture, len(messages))
	denied := make([]chan struct{}, len(messages))
	b.mu.Lock()
	b.subjects = make(map[string]chan struct{})
	b.mu.Unlock()
	for i, m := range messages {
		if errs[i] = instructs(m); errs[i] != nil {
			continue
		}
		if ctx.Err() != nil {
			errs[i] = unavailable(context.Cause(ctx))
			continue
		}
		out := b.encode(m)
		denied[i] = b.watch(out.Subject)
		future, err := b.js.PublishMsgAsync(out, jetstream.WithMsgID(identity(m)))
		if err != nil {
			errs[i] = classify(err)
			continue
		}
		futures[i] = future
	}
	return futures, denied
}

var errDenied = errors.New("NATS does not permit the user to publish to the topic")

var errOther = errors.New("only another stream has acknowledged the message, and no consumer gets it from there: let no other stream take the subjects")

var errUnacknowledged = errors.New("NATS responds, and has not acknowledged the message: the stream may be overloaded, or none of its subjects matches the topic")

// isUnanswered reports whether the broker's own stream has not responded to a message.
func isUnanswered(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, errOther) || errors.Is(err, context.DeadlineExceeded)
}

// accept returns an error unless the broker's own stream has acknowledged the message. Another
// stream may have taken its subjects while it was gone, and through a leafnode, a stream of
// another domain also gets the messages.
func (b *natsBroker) accept(ack *jetstream.PubAck) error {
	if ack.Stream == b.cfg.Name && ack.Domain == b.domain {
		if !ack.Duplicate {
			if ack.Sequence <= b.sequence { // the stream was deleted and created again
				b.checkedAt = time.Time{}
			}
			b.sequence = ack.Sequence
		}
		return nil
	}
	return unavailable(fmt.Errorf("the stream %q of the JetStream domain %q: %w", ack.Stream, ack.Domain, errOther))
}

// await returns the outcome of a message, and whether the client has settled it.
func (b *natsBroker) await(ctx context.Context, future jetstream.PubAckFuture, denied <-chan struct{}) (settled bool, err error) {
	select {
	case ack := <-future.Ok():
		return true, b.accept(ack)
	case err := <-future.Err():
		return true, classify(err)
	case <-denied:
		err = noRoute(errDenied)
	case <-ctx.Done():
		err = unavailable(context.Cause(ctx))
	}
	select {
	case ack := <-future.Ok():
		return true, b.accept(ack)
	default:
		return false, err
	}
}

// watch returns a channel that is closed if the server does not permit the subject. The
// server does not say to which message it objects, and sends it no acknowledgment.
func (b *natsBroker) watch(subject string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.subjects[subject]
	if c == nil {
		c = make(chan struct{})
		b.subjects[subject] = c
	}
	return c
}

// deniedSubject finds the subject in the error of a server that does not permit it.
var deniedSubject = regexp.MustCompile(`Permissions Violation for Publish to "([^"]*)"`)

// notice takes note of errors that no call returns. It logs those that are not about a
// message, such as that the server rejects the user: each at most once a minute, because
// the client connects again four times a second.
func (b *natsBroker) notice(_ *nats.Conn, _ *nats.Subscription, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := deniedSubject.FindStringSubmatch(err.Error()); found != nil {
		if c := b.subjects[found[1]]; c != nil && !isClosed(c) {
			close(c)
		}
		return
	}
	if text := err.Error(); text != b.logged || time.Since(b.loggedAt) >= time.Minute {
		b.logged, b.loggedAt = text, time.Now()
		slog.Warn("broker: NATS reported an error", "error", err)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var errNoSubject = errors.New("no subject of the stream matches the topic: another program created or changed the stream")

// explain finds out why the stream has not responded to some messages. If there is no stream, it
// creates the stream for the next attempt. If there is one, and the server is not away, the messages
// have no route. The server says that no stream takes a topic only while nobody subscribes to it.
func (b *natsBroker) explain(ctx context.Context, unanswered []int, errs []error) {
	switch {
	case len(unanswered) == 0 || errors.Is(ctx.Err(), context.Canceled):
		return
	case ctx.Err() != nil:
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), handshake)
		defer cancel()
		ctx = late
	}
	stream, err := b.js.Stream(ctx, b.cfg.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		b.createAgain(ctx)
		return
	case err != nil:
		return
	}
	if slices.ContainsFunc(unanswered, func(i int) bool { return errors.Is(errs[i], errOther) }) {
		b.readDomainAgain(ctx)
	}
	takesAll := slices.Contains(stream.CachedInfo().Config.Subjects, b.cfg.subjects())
	for _, i := range unanswered {
		switch {
		case errors.Is(errs[i], context.DeadlineExceeded):
			errs[i] = noRoute(errUnacknowledged)
		case !takesAll:
			errs[i] = noRoute(errNoSubject)
		}
	}
}

// createAgain creates the stream that has gone, and with it the messages that no consumer had
// handled: the log says so.
func (b *natsBroker) createAgain(ctx context.Context) {
	if err := b.createStream(ctx); err != nil {
		slog.WarnContext(ctx, "broker: the NATS stream could not be created again", "stream", b.cfg.Name, "error", err)
		return
	}
	slog.ErrorContext(ctx, "broker: the NATS stream was missing and was created again: its messages are lost", "stream", b.cfg.Name)
}

// identity returns the ID by which the stream recognizes duplicates. Messages of two
// tenants, of two topics, or with two payloads may have the same message ID, and must
// not count as duplicates.
func identity(m outbox.Message) string {
	return hex.EncodeToString(onlyonce.Fingerprint([]byte(m.Tenant), []byte(m.Topic), []byte(m.ID), m.Payload))
}

// instructs returns an error for a message with a header that is an instruction to the
// server, such as to delete all other messages, or to reject this one forever.
func instructs(m outbox.Message) error {
	for name := range m.Headers {
		if len(name) >= len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix) {
			return fmt.Errorf("NATS treats the header %q as an instruction to the server: use a name that does not begin with %s", name, ownPrefix)
		}
	}
	return nil
}

// ownPrefix is the prefix of the headers that NATS itself uses.
const ownPrefix = "Nats-"

func (b *natsBroker) encode(m outbox.Message) *nats.Msg {
	header := make(nats.Header, len(m.Headers)+2)
	for name, value := range m.Headers {
		header[name] = []string{value}
	}
	header[headerTopic] = []string{m.Topic}
	if !m.CreatedAt.IsZero() {
		header[headerCreated] = []string{strconv.FormatInt(m.CreatedAt.Unix(), 10)}
	}
	return &nats.Msg{Subject: b.cfg.Name + "." + name(m.Topic), Header: header, Data: m.Payload}
}

// These are the server's codes for a message that is larger than the stream allows, and
// for one that it does not store.
const (
	tooLarge  = 10054
	notStored = 10077
)

// classify marks an error as the broker's, unless the broker will never accept the
// message, or has no room for its topic.
func classify(err error) error {
	var rejected *jetstream.APIError
	switch errors.As(err, &rejected); {
	case errors.Is(err, nats.ErrMaxPayload), rejected != nil && rejected.ErrorCode == tooLarge:
		return err
	case rejected != nil && rejected.ErrorCode == notStored && strings.Contains(rejected.Description, "per subject"):
		return noRoute(err)
	}
	return unavailable(err)
}

// maxPending is the largest number of delivered messages without an acknowledgment.
// Messages that failed and are redelivered later count, and must not delay the others.
const maxPending = 10000

// Consume uses a durable consumer that begins with the first message of the stream,
// because a relay may have published before there was a consumer. It creates the consumer
// or the stream again if it has gone.
func (b *natsBroker) Consume(ctx context.Context, consumer string, handle Handler) error {
	return persist(ctx, func() (bool, error) {
		stream, err := b.js.Stream(ctx, b.cfg.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			b.createAgain(ctx)
			return false, nil
		}
		if err != nil {
			return false, final(err, b.rejectedForGood(err))
		}
		durable := durable(stream, consumer)
		c, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.cfg.AckWait,
			DeliverPolicy: jetstream.DeliverAllPolicy, MaxAckPending: maxPending,
		})
		if err == nil {
			err = b.checkSame(ctx, stream, durable)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) { // it was deleted meanwhile
			return false, nil
		}
		if err != nil {
			return false, final(err, b.rejectedForGood(err))
		}
		return b.consume(ctx, c, handle)
	})
}

// rejectedForGood reports whether NATS, or the client, rejects a call whenever it is repeated.
func (b *natsBroker) rejectedForGood(err error) bool {
	var rejected jetstream.JetStreamError
	return errors.As(err, &rejected) && rejected.APIError() != nil || b.conn.IsClosed()
}

// durable returns the name of a consumer at the server. It is another one for each stream of the same
// name: an acknowledgment names the consumer and the number of the message, and a stream that was
// deleted and created again gives its messages the same numbers.
func durable(stream jetstream.Stream, consumer string) string {
	return name(consumer) + "-" + strconv.FormatInt(stream.CachedInfo().Created.UnixNano(), 36)
}

var errReplaced = errors.New("the stream was deleted and created again")

// checkSame returns errReplaced, and deletes the consumer, if the stream was deleted and created
// again before the consumer was created: the consumer has the name of one of the old stream.
func (b *natsBroker) checkSame(ctx context.Context, stream jetstream.Stream, durable string) error {
	now, err := b.js.Stream(ctx, b.cfg.Name)
	if err != nil || now.CachedInfo().Created.Equal(stream.CachedInfo().Created) {
		return err
	}
	if err := now.DeleteConsumer(ctx, durable); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		slog.WarnContext(ctx, "broker: a consumer whose stream was replaced could not be deleted", "consumer", durable, "error", err)
	}
	return errReplaced
}

// heartbeat is how often the server says that it has no message. The client reports an error
// after twice as long without one.
const heartbeat = 5 * time.Second

// consume handles messages until ctx ends or the consumer no longer exists.
func (b *natsBroker) consume(ctx context.Context, c jetstream.Consumer, handle Handler) (came bool, err error) {
	l := openLanes(ctx, b.cfg.Handlers, handle)
	defer l.close()
	incoming, err := c.Messages(jetstream.PullMaxMessages(2*b.cfg.Handlers), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return false, nil
	}
	defer incoming.Stop()
	stop := context.AfterFunc(ctx, incoming.Drain) // returns received messages to the stream
	defer stop()
	turns := make(chan struct{}, 4*b.cfg.Handlers) // so that no message waits for a handler for longer than AckWait
	for {
		m, err := incoming.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed), errors.Is(err, jetstream.ErrConsumerDeleted):
			return came, nil
		case errors.Is(err, jetstream.ErrNoHeartbeat): // the client gets no error for a consumer that went while it was not connected
			if _, err := c.Info(ctx); errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
				return came, nil
			}
		case err == nil: // the client recovers from other errors by itself
			came = true
			turns <- struct{}{}
			l.add(b.decode(m, func() { <-turns }))
		}
	}
}

// decode returns a delivery that calls done when it has been handled.
func (b *natsBroker) decode(m jetstream.Msg, done func()) delivery {
	created, undated := strconv.ParseInt(m.Headers().Get(headerCreated), 10, 64)
	headers := make(map[string]string, len(m.Headers()))
	for name, values := range m.Headers() {
		if name != jetstream.MsgIDHeader && name != headerCreated && len(values) > 0 {
			headers[name] = values[0]
		}
	}
	topic := strings.TrimPrefix(m.Subject(), b.cfg.Name+".") // a stream that others created may have other subjects
	d := delivery{message: message(topic, headers, m.Data()), ack: func() error {
		defer done()
		return m.Ack()
	}}
	if meta, err := m.Metadata(); err == nil {
		d.tries = int(meta.NumDelivered)     // a count of deliveries
		d.message.CreatedAt = meta.Timestamp // when it was stored, which may be long after it was first published
		if at := time.Unix(created, 0); undated == nil && at.Before(meta.Timestamp) {
			d.message.CreatedAt = at
		}
	}
	d.retry = func(after time.Duration) error {
		defer done()
		return m.NakWithDelay(after)
	}
	return d
}
