package sandboxes

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A Store keeps the records, in the database of the sandboxes.
type Store interface {
	onlyonce.TxStore[*sql.Tx]
}

// A Config holds the settings of an API. Dir is required.
type Config struct {
	Dir string // the directory of the workspaces; created if it does not exist

	Keep        time.Duration // how long a key is kept with its response; default 24h
	MaxExtend   int64         // the largest extend_by, in seconds; default 86400
	MaxSessions int64         // largest number of sessions of an owner at a time, and of all owners for callers without a token; default 1000
	IdleTimeout time.Duration // how long a session lasts without a keepalive, in whole seconds; default 10m
	Lease       time.Duration // how long the transaction of a keyed command may take; default 30s
	Wait        time.Duration // how long a repeat of a running command waits for its response; default 10s; negative: not at all

	Tokens         Tokens // the valid bearer tokens and their owners; default: none
	AllowAnonymous bool   // a caller without a token may name itself in X-Owner, unless that owner has or had a token

	Profiles map[string]Profile // by name; default: python-default, whose session only sleeps
	Runtime  Runtime            // runs the sessions; default: as processes of this machine

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

// A Profile is a kind of sandbox.
type Profile struct {
	Command      string // run in a session: an absolute path, or a name in the server's PATH
	Args         []string
	Capabilities []string // shown to callers
}

// defaultProfile is the profile of a sandbox whose create names none.
const defaultProfile = "python-default"

// These are defaults of a Config.
const (
	DefaultMaxExtend   = 86400 // seconds
	DefaultMaxSessions = 1000
	DefaultIdleTimeout = 10 * time.Minute
	DefaultWait        = 10 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Dir == "" {
		panic("sandboxes: Config.Dir is empty: set it to a directory for the workspaces")
	}
	c.Keep = defaults.Positive("sandboxes: Config.Keep", c.Keep, onlyonce.DefaultKeep)
	c.MaxExtend = defaults.Positive("sandboxes: Config.MaxExtend", c.MaxExtend, DefaultMaxExtend)
	c.MaxSessions = defaults.Positive("sandboxes: Config.MaxSessions", c.MaxSessions, DefaultMaxSessions)
	c.IdleTimeout = defaults.Positive("sandboxes: Config.IdleTimeout", c.IdleTimeout, DefaultIdleTimeout)
	c.Lease = defaults.Positive("sandboxes: Config.Lease", c.Lease, onlyonce.DefaultLease)
	if c.Wait < 0 {
		c.Wait = 0
	} else {
		c.Wait = defaults.Positive("sandboxes: Config.Wait", c.Wait, DefaultWait)
	}
	if c.IdleTimeout%time.Second != 0 {
		panic(fmt.Sprintf("sandboxes: Config.IdleTimeout is %v: write whole seconds", c.IdleTimeout))
	}
	if c.Profiles == nil {
		c.Profiles = map[string]Profile{defaultProfile: {
			Command: "sleep", Args: []string{"2147483647"},
			Capabilities: []string{"filesystem", "shell", "python"},
		}}
	}
	for name, p := range c.Profiles {
		if p.Command == "" || !filepath.IsAbs(p.Command) && strings.ContainsAny(p.Command, `/\`) {
			panic(fmt.Sprintf("sandboxes: Config.Profiles[%q].Command is %q: write an absolute path, or a name in PATH", name, p.Command))
		}
	}
	if c.Runtime == nil {
		c.Runtime = newProcesses()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
