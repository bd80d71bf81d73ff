package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// purge returns a task that deletes what has expired in a store every so often,
// whoever wrote it. The name is the store's in the metrics.
func (m *metrics) purge(name string, store onlyonce.Store, every time.Duration, log *slog.Logger) func(context.Context) error {
	g := onlyonce.New(store, onlyonce.Config{Observer: tell(m.cleanup(name), onlyonce.SlogObserver(log, nil))})
	return func(ctx context.Context) error {
		g.PurgeEvery(ctx, every)
		return nil
	}
}

// tell returns an Observer that tells two.
func tell(one, other onlyonce.Observer) onlyonce.Observer {
	return func(ctx context.Context, e onlyonce.Event) {
		one(ctx, e)
		other(ctx, e)
	}
}

// An interval is the value of a flag: a duration, or 0, which is written as off.
type interval time.Duration

// off is the interval of what never happens.
const off = "off"

var errInterval = errors.New(`write a duration, such as 10m, or off`)

// Set is for pflag.
func (i *interval) Set(text string) error {
	if text == off {
		*i = 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d == 0 {
		return errInterval
	}
	*i = interval(d)
	return nil
}

// Type is for pflag.
func (i *interval) Type() string { return "duration" }

func (i *interval) String() string {
	if *i == 0 {
		return off
	}
	return time.Duration(*i).String()
}
