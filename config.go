package onlyonce

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// These are the defaults of a Config.
const (
	DefaultLease = 30 * time.Second
	DefaultKeep  = 24 * time.Hour

	DefaultCacheMaxAge = 10 * time.Second
)

// A Config controls how a Guard runs its commands. The zero Config is usable.
type Config struct {
	Lease        time.Duration // how long a hold lasts without renewal, and how long a transaction of DoTx may take; default 30s; renewed every third of it
	Keep         time.Duration // how long a settled record stays, or KeepForever; default 24h
	Wait         time.Duration // how long a duplicate waits for a running attempt; 0: it is rejected at once
	KeepFailures bool          // replay a failure instead of running the command again; an error after the context has ended leaves the outcome unknown instead
	HoldUnknown  bool          // reject a command whose outcome is unknown until someone resolves it, instead of running it again; see Unknown

	// Remember is how long the ID of a command that completed, or failed for good, is remembered
	// once it was settled, or KeepForever. If that is longer than Keep, the result is deleted
	// when Keep has passed, and a repeat then gets ErrKeyExpired until Remember has passed: it
	// neither runs the command again nor learns the result. It must not be shorter than Keep.
	// Default: as Keep. After that, a repeat runs the command as a new one.
	Remember time.Duration

	// Reconcile is called first when a command's outcome is unknown. It finds
	// out, for example from a downstream system, how the attempt that left r
	// ended. A completed or failed Settlement is stored and is the
	// command's outcome from then on. The zero Settlement runs the command
	// again: a downstream system that does not know the attempt's call may still
	// receive or execute it, so return an error until it no longer can, unless that
	// system takes the same key from every attempt. StateUnknown, an error, a Settlement that Settlement.Check rejects,
	// or a result that is larger than the store accepts makes the request fail
	// with ErrUnknown. The record then keeps r's Result.Ref and Result.Status, unless the
	// Settlement has others, but not its SettledAt. Only one Reconcile runs for a command at a time. Current(ctx).Key
	// returns the keys that the attempt sent to downstream systems.
	Reconcile func(ctx context.Context, r Record) (Settlement, error)

	// Observer is called for every decision. Nil: errors are logged with
	// slog.Default(), as SlogObserver would: failed commands and outcomes that are
	// unknown, held, lost, unrecorded, taken over or unreadable, and claims that the store
	// could not execute. Successes, replays and rejected duplicates are not logged.
	// DiscardEvents: nothing is.
	Observer Observer

	// Traceparent returns the trace context of a caller in the form of a traceparent header
	// (W3C Trace Context, version 00), or "" if there is none to keep. It is called for
	// every request, before the claim. The record of an attempt keeps it with the result,
	// so that a replay can be linked to the trace of the attempt that ran. Anything else
	// than a valid traceparent is not kept. Nil: none is.
	Traceparent func(context.Context) string

	// MaxWaiters is how many callers may wait in total; more are rejected at
	// once. Callers of one tenant may take three quarters of the places, and
	// fewer while others wait: always at most three times as many as are free.
	// Default 4096.
	MaxWaiters      int
	MaxWaitersPerID int // how many callers may wait for one command; default 256

	// CacheBytes is how many bytes of memory the Guard may use to keep results that no claim can
	// change any more: those of completed commands, and failures that are Final. A repeat
	// then gets the result without a call of the store, even while the store is unreachable.
	// Everything that a record takes is counted; if the memory is full, results that were
	// replayed lately stay. 0: nothing is kept, and every request asks the store.
	//
	// What is kept is in clear, even if the store encrypts its records. Nothing is kept if the
	// store is in a transaction of the caller's, as WithTx of a SQL store returns it: a
	// rollback would not undo the cached records.
	CacheBytes int64

	// CacheMaxAge is how long a result is replayed from memory after it was read from the
	// store or settled, however often it is replayed, and at most for three quarters of the
	// time for which its record stays. If a person resolves or deletes the record, if it is changed
	// otherwise, or if its encryption key is removed, repeats get the former result for at most that long.
	// Guard.Forget ends that at once in its own Guard. Results leave the memory at most
	// twice as long after they arrived. It has no effect without CacheBytes. Default 10s.
	CacheMaxAge time.Duration
}

// withDefaults returns the Config with its zero fields filled in. It panics on
// an invalid value.
func (c Config) withDefaults() Config {
	c.Lease = defaults.Positive("onlyonce: Config.Lease", c.Lease, DefaultLease)
	if c.Keep != KeepForever {
		c.Keep = defaults.Positive("onlyonce: Config.Keep", c.Keep, DefaultKeep)
	}
	if err := checkRemember("Config", c.Remember, c.Keep); err != nil {
		panic("onlyonce: " + err.Error())
	}
	c.Wait = defaults.Positive("onlyonce: Config.Wait", c.Wait, 0)
	c.MaxWaiters = defaults.Positive("onlyonce: Config.MaxWaiters", c.MaxWaiters, 4096)
	c.MaxWaitersPerID = defaults.Positive("onlyonce: Config.MaxWaitersPerID", c.MaxWaitersPerID, 256)
	c.CacheBytes = defaults.Positive("onlyonce: Config.CacheBytes", c.CacheBytes, 0)
	c.CacheMaxAge = defaults.Positive("onlyonce: Config.CacheMaxAge", c.CacheMaxAge, DefaultCacheMaxAge)
	if c.Lease < defaults.ShortestLease {
		panic(fmt.Sprintf("onlyonce: Config.Lease is %v: write at least %v, or leave it 0 for %v", c.Lease, defaults.ShortestLease, DefaultLease))
	}
	return c
}
