package orders

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/broker"
	"github.com/onlyonce-go/onlyonce/services/internal/caller"
)

// A Store keeps the records, in the database of the orders.
type Store interface {
	onlyonce.TxStore[*sql.Tx]
	onlyonce.Resolver
}

// An Outbox keeps events, in the database of the orders.
type Outbox interface {
	outbox.Queue
	Append(ctx context.Context, tx *sql.Tx, messages ...outbox.Message) error
}

// Tokens maps bearer tokens to their owners, as sandboxes.ParseTokens reads them.
type Tokens = caller.Tokens

// A Config holds the settings of an API. The zero Config is usable, but serves only
// callers with a token.
type Config struct {
	Tokens         Tokens // the valid bearer tokens and their owners; the owner is the tenant
	AllowAnonymous bool   // a caller without a token may name its tenant in X-Tenant-ID, unless that tenant has or had a token

	Keep         time.Duration // how long a key is kept with its response; default 24h
	Lease        time.Duration // limit for the transaction of a create, and for how long a relay that died keeps its events; default 30s
	MaxWait      time.Duration // upper limit for the wait of "Prefer: wait=N"; default 10s
	KeepFailures bool          // replay the failure of a create to a repeat; default: the create runs again

	MaxAttempts int // number of failures after which an event is parked with its error; default 10

	// KeepMessages is how long the consumer remembers a message that it handled. It
	// gives up a message from a broker that is older and of which it has no record,
	// because it may have handled it. Without a broker, it handles such a message if its
	// order has no shipment. Default: inbox.DefaultKeep.
	KeepMessages time.Duration

	// Broker is the URL of the broker through which events go to the consumer:
	// nats://… for JetStream, amqp://… for RabbitMQ. Default: none; the outbox
	// itself delivers them, in the process that runs.
	Broker     string
	BrokerName string // name of the stream or the exchange; each database of orders needs its own; default DefaultBrokerName

	// Charge pays for an order before it is created, and returns the payment's
	// reference. A later attempt at the order does not pay again. If the process
	// dies after the payment and before it is recorded, Charge is called again with
	// the same Charge.Key. Default: nothing is charged.
	Charge func(ctx context.Context, c Charge) (ref string, err error)

	// NoMigrate makes New create and change no tables: if they are missing or of another
	// version, New fails. See Migrate. Default: New creates them and brings them up to date.
	NoMigrate bool

	// FingerprintSecret keys the fingerprints in the store with HMAC-SHA-256, so
	// that someone who reads the store cannot recover a short request by trying all
	// possibilities. After a change, repeats of earlier requests are mismatches.
	// Default: none.
	FingerprintSecret []byte

	Observer       onlyonce.Observer // called for every decision about a key
	OutboxObserver outbox.Observer   // called for every event of the relay
	Log            *slog.Logger      // default: nothing is logged

	// Traceparent returns the trace context that a record keeps; see
	// onlyonce.Config.Traceparent. Default: none.
	Traceparent func(context.Context) string

	// ShowKey returns the text that stands for a key in the log; see onlyonce.SlogObserver.
	// Default: the beginning of the record's id, which does not reveal the key.
	ShowKey func(onlyonce.ID) string
}

// These are defaults of a Config.
const (
	DefaultMaxWait     = 10 * time.Second
	DefaultMaxAttempts = 10
	DefaultBrokerName  = broker.DefaultName
)

func (c Config) withDefaults() Config {
	c.Keep = defaults.Positive("orders: Config.Keep", c.Keep, onlyonce.DefaultKeep)
	c.Lease = defaults.Positive("orders: Config.Lease", c.Lease, onlyonce.DefaultLease)
	c.MaxWait = defaults.Positive("orders: Config.MaxWait", c.MaxWait, DefaultMaxWait)
	c.MaxAttempts = defaults.Positive("orders: Config.MaxAttempts", c.MaxAttempts, DefaultMaxAttempts)
	c.KeepMessages = defaults.Positive("orders: Config.KeepMessages", c.KeepMessages, inbox.DefaultKeep)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
