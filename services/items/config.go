package items

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A Config holds the settings of an API. The zero Config is usable.
type Config struct {
	// Tenant returns the tenant of a request, which the server must have verified. Two
	// tenants can use the same key, and never see each other's responses. A keyed
	// request for which it returns "" is rejected with 401. A tenant has at most 256
	// requests at a time; more are rejected with 429. The default is
	// httponce.SingleTenant: all callers are one tenant.
	Tenant func(*http.Request) string

	Keep  time.Duration // how long a key is kept with its response; default 1h
	Lease time.Duration // how long the transaction of a request may take; default 30s

	// NoMigrate makes New create and change no tables: if they are missing or of another
	// version, New fails. See Migrate. Default: New creates them and brings them up to date.
	NoMigrate bool

	// FingerprintSecret keys the fingerprints in the store with HMAC-SHA-256, so
	// that someone who reads the store cannot recover a short request by trying all
	// possibilities. After a change, repeats of earlier requests are mismatches.
	// Default: none.
	FingerprintSecret []byte

	Observer onlyonce.Observer // called for every decision about a key
	Log      *slog.Logger      // default: nothing is logged

	// Traceparent returns the trace context that a record keeps; see
	// onlyonce.Config.Traceparent. Default: none.
	Traceparent func(context.Context) string

	// ShowKey returns the text that stands for a key in the log; see onlyonce.SlogObserver.
	// Default: the beginning of the record's id, which does not reveal the key.
	ShowKey func(onlyonce.ID) string
}

// DefaultKeep is the default of Config.Keep.
const DefaultKeep = time.Hour

func (c Config) withDefaults() Config {
	c.Keep = defaults.Positive("items: Config.Keep", c.Keep, DefaultKeep)
	c.Lease = defaults.Positive("items: Config.Lease", c.Lease, onlyonce.DefaultLease)
	if c.Tenant == nil {
		c.Tenant = httponce.SingleTenant
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
