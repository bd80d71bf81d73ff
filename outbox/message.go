package outbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// These headers are set on every published message for which there is a value.
const (
	HeaderID          = "Onlyonce-Message-Id"
	HeaderTenant      = "Onlyonce-Tenant"
	HeaderKey         = "Onlyonce-Ordering-Key"
	HeaderTraceparent = "traceparent" // W3C Trace Context; see Carry
	HeaderTracestate  = "tracestate"
)

// A Message describes an event to other systems.
type Message struct {
	ID        string            // the same each time the message is published; default: a new UUIDv7
	Topic     string            // the kind and the destination of the message: a subject or a routing key
	Key       string            // the ordering key, shared by all topics and tenants; empty: no order
	Tenant    string            // the tenant to which it belongs; default: HeaderTenant as set by Carry
	Headers   map[string]string // additional headers; those set by Carry and those of the Header constants are added
	Payload   []byte
	CreatedAt time.Time // when it was appended; set by the queue, by its clock
}

// maxName bounds an ID, a Topic, a Key, a Tenant and a header's name, in bytes. Every
// queue and every broker can store that much.
const maxName = 255

// maxHeaders bounds all headers together, in bytes, and maxHeaderCount their number. A
// client of AMQP reads at most 8,192 headers, and NATS takes at most 64 KiB with four bytes
// more for each.
const (
	maxHeaders     = 32 << 10
	maxHeaderCount = 1000
)

// statusHeader is in the messages of a NATS server that tell a client about an error. They have no
// payload.
const statusHeader = "Status"

// natsPrefix begins the headers that a NATS server obeys. Two messages with one Nats-Msg-Id are one
// to a stream, which acknowledges both, and Nats-Rollup deletes older messages.
const natsPrefix = "Nats-"

// copyHeaders are lists of further routing keys to RabbitMQ, which rejects a message with a text there.
var copyHeaders = []string{"CC", "BCC"}

// Prepare completes the ID and the headers of a message that is to be appended
// under ctx. It rejects a message that some broker could not accept. It is
// meant for implementations of Queue.
func Prepare(ctx context.Context, m Message) (Message, error) {
	if m.ID == "" {
		m.ID = NewID()
	}
	m.Headers = headers(ctx, m)
	m.Tenant = m.Headers[HeaderTenant]
	if err := m.check(); err != nil {
		return m, fmt.Errorf("outbox: append: %w", err)
	}
	return m, nil
}

func headers(ctx context.Context, m Message) map[string]string {
	all := maps.Clone(carried(ctx))
	if all == nil {
		all = make(map[string]string, len(m.Headers)+3)
	}
	maps.Copy(all, m.Headers)
	for name, value := range map[string]string{HeaderID: m.ID, HeaderTenant: m.Tenant, HeaderKey: m.Key} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}

// check returns an error if some broker could not accept the message.
func (m Message) check() error {
	if m.ID == "" {
		return errors.New("the Message has no ID")
	}
	if m.Topic == "" {
		return errors.New("the Message has no Topic: set it to the kind of the event, such as \"orders.created\"")
	}
	for field, value := range map[string]string{"ID": m.ID, "Topic": m.Topic, "Key": m.Key, "Tenant": m.Tenant} {
		if len(value) > maxName {
			return fmt.Errorf("the Message's %s has %d bytes: use at most %d, or a hash", field, len(value), maxName)
		}
		if !plain(value) {
			return fmt.Errorf("the Message's %s %q has control characters or is not UTF-8", field, value)
		}
	}
	for field, value := range map[string]string{"ID": m.ID, "Tenant": m.Tenant} {
		if strings.Trim(value, " ") != value {
			return fmt.Errorf("the Message's %s %q begins or ends with a space, which some brokers drop: two messages could become one", field, value)
		}
	}
	if n := len(m.Headers); n > maxHeaderCount {
		return fmt.Errorf("the Message has %d headers: use at most %d", n, maxHeaderCount)
	}
	size := 0
	for name, value := range m.Headers {
		if len(name) > maxName {
			return fmt.Errorf("the Message's header %q has a name of %d bytes: use at most %d", name, len(name), maxName)
		}
		if !httpfield.IsToken(name) || !plain(value) {
			return fmt.Errorf("the Message's header %q has characters that some broker rejects: use letters, digits and hyphens in the name, and one line of text as the value", name)
		}
		if len(m.Payload) == 0 && strings.EqualFold(name, statusHeader) {
			return fmt.Errorf("the Message has the header %q and no Payload: a NATS client takes it for a message of the server and drops it; use another name, or a payload", name)
		}
		if len(name) >= len(natsPrefix) && strings.EqualFold(name[:len(natsPrefix)], natsPrefix) {
			return fmt.Errorf("the Message has the header %q, which a NATS server takes for an instruction, such as to drop the message: use a name that does not begin with %s", name, natsPrefix)
		}
		if slices.Contains(copyHeaders, name) {
			return fmt.Errorf("the Message has the header %q, which RabbitMQ takes for a list of routing keys, and so rejects the message: use another name", name)
		}
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return fmt.Errorf("the Message's headers have %d bytes: use at most %d", size, maxHeaders)
	}
	return nil
}

// plain reports whether text is valid as the value of a header, in the name of a
// subject, and as a text of every database.
func plain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// NewID returns a new UUIDv7 (RFC 9562). It is random, and later IDs mostly
// sort later.
func NewID() string {
	var id [16]byte
	rand.Read(id[6:]) // never fails
	ms := time.Now().UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

type carryKey struct{}

// Carry returns a context that adds the header to every message that is
// appended under it, for example the trace context of the current request. The
// message's own headers take precedence.
func Carry(ctx context.Context, name, value string) context.Context {
	all := maps.Clone(carried(ctx))
	if all == nil {
		all = make(map[string]string, 1)
	}
	all[name] = value
	return context.WithValue(ctx, carryKey{}, all)
}

func carried(ctx context.Context) map[string]string {
	all, _ := ctx.Value(carryKey{}).(map[string]string)
	return all
}
