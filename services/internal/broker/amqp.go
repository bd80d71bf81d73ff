package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// An amqpBroker has one exchange, and a queue for every consumer. It publishes and
// consumes on separate connections: when RabbitMQ is short of memory or disk, it stops
// reading from connections that publish, and would not see the acknowledgments that
// empty its queues.
type amqpBroker struct {
	cfg        Config
	incoming   amqpLink
	outgoing   amqpLink
	publishing sync.Mutex // one batch at a time

	channel    *amqp.Channel    // for publishing; nil: there is none
	returns    chan amqp.Return // messages that no queue took
	rejections chan *amqp.Error // why the server closed the channel
	boundAt    time.Time        // when the queues of Config.Consumers were last bound; zero: not since the channel was opened
}

// amqpBatch is the largest number of messages without an acknowledgment, and of
// returned messages.
const amqpBatch = 1000

func openAMQP(ctx context.Context, address string, cfg Config) (*amqpBroker, error) {
	b := &amqpBroker{cfg: cfg, incoming: amqpLink{address: address}, outgoing: amqpLink{address: address}}
	ctx, cancel := context.WithTimeout(ctx, respondWithin)
	defer cancel()
	defer b.outgoing.within(ctx)()
	ch, err := b.outgoing.channel(cfg.Name)
	if err != nil {
		return nil, err
	}
	return b, ch.Close()
}

// respondWithin is how long RabbitMQ may take to respond to the calls that prepare a connection or
// a consumer. It may send heartbeats meanwhile.
const respondWithin = 10 * time.Second

// Redelivery is RabbitMQ's consumer_timeout. RabbitMQ redelivers at once when the
// connection of a consumer breaks.
func (b *amqpBroker) Redelivery() time.Duration { return 30 * time.Minute }

func (b *amqpBroker) Close() error {
	b.outgoing.close()
	b.incoming.close()
	return nil
}

var errNoQueue = errors.New("no queue is bound to the exchange: a consumer creates its queue when it starts")

var errFull = errors.New("RabbitMQ rejected the message: a queue for it may be full")

var errUnconfirmed = errors.New("RabbitMQ responds, and has not confirmed the message: a queue for it may be overloaded, or have lost most of its replicas")

// Publish sends all messages as persistent ones, and then waits for the confirmations.
// A message that no queue takes has no route until there is a consumer, and one that a
// full queue rejects has none until there is room. Neither has one that is not confirmed
// until ctx has ended, although the server responds.
func (b *amqpBroker) Publish(ctx context.Context, messages []outbox.Message) []error {
	b.publishing.Lock()
	defer b.publishing.Unlock()
	errs := make([]error, 0, len(messages))
	for len(messages) > 0 {
		n := min(len(messages), amqpBatch)
		errs = append(errs, b.publishApart(ctx, messages[:n])...)
		messages = messages[n:]
	}
	return errs
}

// publishApart publishes messages. If the server will never accept one of them, or does
// not permit its topic, it closes the channel and so fails all; publishApart then
// publishes ever smaller parts until only the rejected messages fail.
func (b *amqpBroker) publishApart(ctx context.Context, messages []outbox.Message) []error {
	errs := b.publish(ctx, messages, b.route)
	rejection := b.rejection()
	if rejection == nil {
		return errs
	}
	var at []int
	for i, err := range errs {
		if errors.Is(err, outbox.ErrUnavailable) {
			at = append(at, i)
		}
	}
	topic := func(i, j int) int { return strings.Compare(messages[i].Topic, messages[j].Topic) }
	slices.SortStableFunc(at, topic)
	oneTopic := len(at) > 0 && topic(at[0], at[len(at)-1]) == 0
	if len(messages) == 1 || oneTopic && errors.Is(rejection, outbox.ErrNoRoute) {
		for _, i := range at {
			errs[i] = rejection
		}
		return errs
	}
	for _, part := range [][]int{at[:len(at)/2], at[len(at)/2:]} {
		if len(part) == 0 {
			continue
		}
		again := make([]outbox.Message, len(part))
		for k, i := range part {
			again[k] = messages[i]
		}
		for k, err := range b.publishApart(ctx, again) {
			errs[part[k]] = err
		}
	}
	return errs
}

// rejection returns why the server closed the channel for publishing, if the reason is
// a message, such as an invalid header or its size, or that the server does not permit
// the message's topic or the exchange. The channel also closes with its connection, whose
// end is no message's fault whatever code the server gives.
func (b *amqpBroker) rejection() error {
	select {
	case err := <-b.rejections:
		switch {
		case err == nil || !b.outgoing.isOpen():
		case err.Code == amqp.PreconditionFailed || err.Code == amqp.ContentTooLarge:
			return fmt.Errorf("RabbitMQ rejects the message: %w", err)
		case err.Code == amqp.AccessRefused:
			return noRoute(err)
		}
	default:
	}
	return nil
}

// A route returns the exchange and the routing key of a message.
type route func(m outbox.Message) (exchange, key string)

func (b *amqpBroker) route(m outbox.Message) (exchange, key string) { return b.cfg.Name, name(m.Topic) }

func (b *amqpBroker) publish(ctx context.Context, messages []outbox.Message, to route) []error {
	errs := make([]error, len(messages))
	confirms := b.send(ctx, messages, to, errs)
	var unconfirmed []int
	for i, confirm := range confirms {
		if confirm == nil || errs[i] != nil {
			continue
		}
		switch _, err := confirm.WaitContext(ctx); {
		case confirm.Acked():
		case err != nil:
			errs[i] = unavailable(err)
			unconfirmed = append(unconfirmed, i)
		case b.channel.IsClosed():
			errs[i] = unavailable(amqp.ErrClosed)
		default:
			errs[i] = noRoute(errFull)
		}
	}
	if len(unconfirmed) > 0 && b.abandon(ctx) {
		for _, i := range unconfirmed {
			errs[i] = noRoute(errUnconfirmed)
		}
	}
	b.takeBack(messages, errs)
	return errs
}

// abandon closes the channel, because the client would count unconfirmed messages for
// as long as the channel lives. It reports whether the server responds: then it is not away, and
// only withholds the confirmations, as it does while a queue has lost most of its replicas.
func (b *amqpBroker) abandon(ctx context.Context) (responds bool) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || b.channel.IsClosed() || b.outgoing.taking() != nil {
		return false
	}
	late := time.AfterFunc(handshake, b.outgoing.sever)
	defer late.Stop()
	return b.channel.Close() == nil
}

// send sends messages until ctx ends, and records an error for each message that it
// could not send.
func (b *amqpBroker) send(ctx context.Context, messages []outbox.Message, to route, errs []error) []*amqp.DeferredConfirmation {
	confirms := make([]*amqp.DeferredConfirmation, len(messages))
	err := context.Cause(ctx)
	if err == nil {
		defer b.outgoing.within(ctx)()
		err = b.ready()
	}
	frame := b.outgoing.frameSize()
	for i, m := range messages {
		encoded := encodeAMQP(m)
		if errs[i] = cmp.Or(checkNames(m), checkHeaders(encoded, frame)); errs[i] != nil {
			continue
		}
		if err == nil {
			err = b.outgoing.taking()
		}
		if err == nil {
			exchange, key := to(m)
			confirms[i], err = b.channel.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, encoded)
		}
		switch {
		case errors.Is(err, outbox.ErrNoRoute):
			errs[i] = err
		case err != nil:
			errs[i] = unavailable(err)
		}
	}
	return confirms
}

// longestName is the largest length of AMQP's short strings, in bytes.
const longestName = 255

// checkNames returns an error for a message with a name that is too long. Sending it
// would end the connection, and so fail all other messages.
func checkNames(m outbox.Message) error {
	if key := name(m.Topic); len(key) > longestName {
		return fmt.Errorf("the topic %.40q… is a routing key of %d bytes, but AMQP allows at most %d: use a shorter one, or letters and digits", m.Topic, len(key), longestName)
	}
	for header := range m.Headers {
		if len(header) > longestName {
			return fmt.Errorf("the name of the header %.40q… has %d bytes, but AMQP allows at most %d", header, len(header), longestName)
		}
	}
	return nil
}

// checkHeaders returns an error for a message whose properties do not fit into a frame of so many
// bytes: AMQP has no way to divide them. Sending it would end the connection, and so fail
// all other messages. 0 means that there is no limit.
func checkHeaders(m amqp.Publishing, frame int) error {
	if size := headerFrame(m); frame > 0 && size > frame {
		return fmt.Errorf("the headers take %d bytes in AMQP, but RabbitMQ accepts frames of at most %d: use less, or raise the server's frame_max", size, frame)
	}
	return nil
}

// headerFrame returns the size of the frame with the properties of a message that encodeAMQP
// made (AMQP 0-9-1, section 4.2.6.1).
func headerFrame(m amqp.Publishing) int {
	size := 7 + 1                        // the frame's head and end
	size += 2 + 2 + 8 + 2                // class, weight, size of the body, flags
	size += 1 + 1 + len(m.MessageId) + 8 // the delivery mode, the ID, the timestamp
	size += 4                            // the size of the table
	for name, value := range m.Headers {
		size += 1 + len(name) + 1 + 4 + len(value.(string))
	}
	return size
}

// takeBack records an error for each returned message. RabbitMQ returns a message
// before it confirms it.
func (b *amqpBroker) takeBack(messages []outbox.Message, errs []error) {
	var at map[string][]int // indexes of messages by the result of sentAs; nil until one was returned
	for {
		select {
		case back, ok := <-b.returns:
			if !ok {
				b.returns = nil // the channel is closed
				return
			}
			if at == nil {
				at = make(map[string][]int, len(messages))
				for i, m := range messages {
					key := sentAs(m.ID, m.Headers[outbox.HeaderTenant], m.Topic, m.Payload)
					at[key] = append(at[key], i)
				}
			}
			tenant, _ := back.Headers[outbox.HeaderTenant].(string)
			topic, _ := back.Headers[headerTopic].(string)
			for _, i := range at[sentAs(back.MessageId, tenant, topic, back.Body)] {
				errs[i] = noRoute(errNoQueue)
			}
		default:
			return
		}
	}
}

// sentAs identifies a message that may be returned. Its ID does not suffice, because
// messages of two tenants, or of two topics, may have the same ID.
func sentAs(id, tenant, topic string, payload []byte) string {
	return identity(outbox.Message{ID: id, Tenant: tenant, Topic: topic, Payload: payload})
}

// ready opens the channel for publishing if there is none, and binds the queues of
// Config.Consumers if that was long ago.
func (b *amqpBroker) ready() error {
	if b.channel == nil || b.channel.IsClosed() {
		ch, err := b.outgoing.channel(b.cfg.Name)
		if err != nil {
			return err
		}
		if err := ch.Confirm(false); err != nil {
			return errors.Join(err, ch.Close())
		}
		b.channel, b.returns = ch, ch.NotifyReturn(make(chan amqp.Return, amqpBatch))
		b.rejections = ch.NotifyClose(make(chan *amqp.Error, 1))
		b.boundAt = time.Time{}
	}
	if time.Since(b.boundAt) < bindEvery {
		return nil
	}
	b.boundAt = time.Time{}
	for _, consumer := range b.cfg.Consumers {
		if err := bindAs(&b.outgoing, b.cfg.Name, b.cfg.queue(consumer), (*amqp.Channel).QueueDeclarePassive); err != nil {
			return unbound(b.cfg.queue(consumer), err)
		}
	}
	b.boundAt = time.Now()
	return nil
}

// unbound returns the error of messages that the queue of a consumer would not get.
func unbound(queue string, err error) error {
	var rejected *amqp.Error
	switch {
	case !errors.As(err, &rejected):
		return err
	case rejected.Code == amqp.NotFound:
		return noRoute(fmt.Errorf("%w: the queue %s is missing", errNoQueue, queue))
	case rejected.Code == amqp.AccessRefused:
		return noRoute(fmt.Errorf("bind the queue %s, so that no message misses it: %w", queue, err))
	}
	return err
}

func encodeAMQP(m outbox.Message) amqp.Publishing {
	table := make(amqp.Table, len(m.Headers)+1)
	for name, value := range m.Headers {
		table[name] = value
	}
	table[headerTopic] = m.Topic
	return amqp.Publishing{MessageId: m.ID, DeliveryMode: amqp.Persistent, Timestamp: m.CreatedAt, Headers: table, Body: m.Payload}
}

// queue returns the name of a consumer's queue in RabbitMQ.
func (c Config) queue(consumer string) string { return c.Name + "." + name(consumer) }

// Consume uses a durable queue for each consumer, and continues after the connection
// broke.
func (b *amqpBroker) Consume(ctx context.Context, consumer string, handle Handler) error {
	queue := b.cfg.queue(consumer)
	return persist(ctx, func() (bool, error) {
		if err := b.declare(ctx, queue); err != nil {
			return false, final(err, rejectedForGood(err))
		}
		return b.consume(ctx, queue, handle), nil
	})
}

// rejectedForGood reports whether RabbitMQ rejects a declaration whenever it is repeated. It does
// not if the exchange or the queue was deleted in between: the next one creates both.
func rejectedForGood(err error) bool {
	var rejected *amqp.Error
	return errors.As(err, &rejected) && rejected.Code >= 400 && rejected.Code < 500 && rejected.Code != amqp.NotFound
}

// declare declares the queue, unless another program has declared one with other arguments, and
// binds it. It returns an error for a queue that RabbitMQ deletes together with acknowledged messages.
func (b *amqpBroker) declare(ctx context.Context, queue string) error {
	err := b.declareAs(ctx, queue, (*amqp.Channel).QueueDeclare)
	var rejected *amqp.Error
	if errors.As(err, &rejected) && rejected.Code == amqp.PreconditionFailed && !doesNotLast(rejected) {
		return b.declareAs(ctx, queue, (*amqp.Channel).QueueDeclarePassive)
	}
	return err
}

// doesNotLast reports whether RabbitMQ rejects a declaration because the queue is transient or
// auto-delete. Only the text says so.
func doesNotLast(err *amqp.Error) bool {
	return strings.Contains(err.Reason, "inequivalent arg 'durable' for queue") || strings.Contains(err.Reason, "inequivalent arg 'auto_delete' for queue")
}

// rejecting makes a queue reject a message when it is full, also if a policy says that it drops
// its oldest one.
var rejecting = amqp.Table{amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish}

type declareQueue func(ch *amqp.Channel, name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error)

func (b *amqpBroker) declareAs(ctx context.Context, queue string, declare declareQueue) error {
	ctx, cancel := context.WithTimeout(ctx, respondWithin)
	defer cancel()
	defer b.incoming.within(ctx)()
	return bindAs(&b.incoming, b.cfg.Name, queue, declare)
}

// bindAs declares a queue and binds it to an exchange, on a channel of its own.
func bindAs(on *amqpLink, exchange, queue string, declare declareQueue) error {
	ch, err := on.channel(exchange)
	if err != nil {
		return err
	}
	if _, err := declare(ch, queue, true, false, false, false, rejecting); err != nil {
		return errors.Join(err, ch.Close())
	}
	return errors.Join(ch.QueueBind(queue, "#", exchange, false, nil), ch.Close())
}

// consume handles messages until ctx ends or the connection breaks. It returns whether
// a message came.
func (b *amqpBroker) consume(ctx context.Context, queue string, handle Handler) (came bool) {
	ch, incoming, err := b.subscribe(ctx, queue)
	if err != nil {
		return false
	}
	defer func() {
		late := time.AfterFunc(handshake, b.incoming.sever)
		defer late.Stop()
		_ = ch.Close()
	}()
	ended := ch.NotifyClose(make(chan *amqp.Error, 1))
	back := b.openReturns(queue)
	defer back.close()
	l := openLanes(ctx, b.cfg.Handlers, handle)
	defer l.close()
	defer b.keepBound(queue)()
	for {
		select {
		case <-ctx.Done():
			return came
		case d, ok := <-incoming:
			if !ok {
				logEnd(queue, ended)
				return came
			}
			came = true
			l.add(decodeAMQP(d, back))
		case d := <-back.again:
			l.add(d)
		}
	}
}

// logEnd logs why a consumer gets no more messages. If it is a message, such as one with headers that
// the client can't read, RabbitMQ redelivers it again and again, and the consumer gets no others.
func logEnd(queue string, ended <-chan *amqp.Error) {
	select {
	case err, broke := <-ended:
		if broke {
			slog.Warn("broker: the connection of the consumer to RabbitMQ broke", "queue", queue, "error", err)
		}
	default:
		slog.Warn("broker: RabbitMQ canceled the consumer", "queue", queue)
	}
}

// subscribe begins to consume a queue on a channel of its own.
func (b *amqpBroker) subscribe(ctx context.Context, queue string) (*amqp.Channel, <-chan amqp.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, respondWithin)
	defer cancel()
	defer b.incoming.within(ctx)()
	ch, err := b.incoming.channel(b.cfg.Name)
	if err != nil {
		return nil, nil, err
	}
	if err := ch.Qos(4*b.cfg.Handlers, 0, false); err != nil {
		return nil, nil, errors.Join(err, ch.Close())
	}
	incoming, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, nil, errors.Join(err, ch.Close())
	}
	return ch, incoming, nil
}

// bindEvery is how often a consumer binds its queue to the exchange again.
const bindEvery = 5 * time.Second

// keepBound binds the queue again and again until stop is called: RabbitMQ does not tell a
// consumer that somebody deleted the exchange, and with it the binding.
func (b *amqpBroker) keepBound(queue string) (stop func()) {
	ctx, sever := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var binding sync.WaitGroup
	binding.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(bindEvery):
			}
			if err := b.declareAs(ctx, queue, (*amqp.Channel).QueueDeclarePassive); err != nil {
				slog.Warn("broker: the RabbitMQ queue could not be bound again", "queue", queue, "error", err)
			}
		}
	})
	return func() {
		close(ended)
		late := time.AfterFunc(handshake, sever)
		binding.Wait()
		late.Stop()
		sever()
	}
}

// longestHold is how long a message that could not be handled is held before it is
// rejected, because RabbitMQ redelivers at once.
const longestHold = time.Second

// Returns give messages that could not be handled back to a queue.
type returns struct {
	queue    string
	copies   *amqpBroker   // publishes copies, on a connection that is opened for the first
	again    chan delivery // of messages that could not be copied
	consumes context.Context
	close    func()

	mu       sync.Mutex
	loggedAt time.Time // when a message was logged that could not be copied
}

func (b *amqpBroker) openReturns(queue string) *returns {
	r := &returns{
		queue:  queue,
		copies: &amqpBroker{cfg: Config{Name: b.cfg.Name}, outgoing: amqpLink{address: b.outgoing.address}},
		again:  make(chan delivery),
	}
	var end context.CancelFunc
	r.consumes, end = context.WithCancel(context.Background())
	r.close = func() {
		end()
		r.copies.outgoing.close()
	}
	return r
}

// mostReturns is how often a message may come back from a quorum queue before a copy replaces it. A
// quorum queue drops a message that has come back too often, since RabbitMQ 4 by default after 20
// times, and counts from zero for a copy.
const mostReturns = 10

// copyWithin is how long RabbitMQ may take to confirm a copy.
const copyWithin = 10 * time.Second

// requeueAfter gives a message back to its queue after a while. While no copy can be published, the message
// stays with the consumer, which handles it again: a full queue has no room for a copy until something was
// handled, and such messages may be all that RabbitMQ delivers at a time. The consumer's end also gives it
// back.
func (r *returns) requeueAfter(d amqp.Delivery, m outbox.Message, after time.Duration) {
	time.AfterFunc(after, func() {
		if count, _ := d.Headers["x-delivery-count"].(int64); count < mostReturns {
			_ = d.Nack(false, true)
		} else if err := r.copy(m); err == nil {
			_ = d.Ack(false)
		} else if r.consumes.Err() == nil {
			r.log(m, err)
			time.AfterFunc(longestHold, func() { r.handleAgain(d) })
		}
	})
}

// log logs that a message could not be copied, for one message a minute: there may be many, and each
// is tried again every second.
func (r *returns) log(m outbox.Message, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.loggedAt) < time.Minute {
		return
	}
	r.loggedAt = time.Now()
	slog.Warn("broker: a message that RabbitMQ would drop could not be copied", "queue", r.queue, "message_id", m.ID, "error", err)
}

func (r *returns) handleAgain(d amqp.Delivery) {
	select {
	case r.again <- decodeAMQP(d, r):
	case <-r.consumes.Done():
	}
}

// copy adds a copy of a message to the queue.
func (r *returns) copy(m outbox.Message) error {
	ctx, cancel := context.WithTimeout(r.consumes, copyWithin)
	defer cancel()
	r.copies.publishing.Lock()
	defer r.copies.publishing.Unlock()
	return r.copies.publish(ctx, []outbox.Message{m}, func(outbox.Message) (exchange, key string) { return "", r.queue })[0]
}

func decodeAMQP(d amqp.Delivery, back *returns) delivery {
	headers := make(map[string]string, len(d.Headers))
	for name, value := range d.Headers {
		if text, ok := value.(string); ok {
			headers[name] = text
		}
	}
	m := message(d.RoutingKey, headers, d.Body)
	m.CreatedAt = d.Timestamp
	return delivery{
		message: m,
		ack:     func() error { return d.Ack(false) },
		retry: func(after time.Duration) error { // the lane goes on; the end of the channel rejects as well
			back.requeueAfter(d, m, min(after, longestHold))
			return nil
		},
	}
}
