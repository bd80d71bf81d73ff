//go:build linux

// Package costs measures what a keyed request costs: round trips, bytes on the way, writes,
// bytes of the server's log and of its data, and processor time. It also compares the predictions of
// a queueing model with measured rates and latencies.
package costs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A System is a store's server, which nothing else uses.
type System struct {
	Name string

	// Open opens a store with connections of its own, which go through the meter if there
	// is one.
	Open func(ctx context.Context, through *Meter) (s onlyonce.Store, closeStore func(), err error)

	// Meter returns a new meter before the server; nil: there is no server.
	Meter func() (*Meter, error)

	// Written returns how much the server has written since it was started. Everything is
	// counted once all stores are closed.
	Written func(ctx context.Context) (Written, error)

	Close func() error
}

// Written holds the amounts that a server has written.
type Written struct {
	Writes float64 // rows, records or messages that it was told to write
	Log    float64 // bytes of its log
	Data   float64 // bytes of its data, with the indexes
}

// A Meter is a proxy between a store and its server that counts round trips and bytes.
type Meter struct {
	*faults.CuttingProxy

	// trips returns the number of round trips since its last call.
	trips func() int
}

func newMeter(server string) (*Meter, error) {
	c, err := faults.NewCuttingProxy(server)
	if err != nil {
		return nil, err
	}
	return &Meter{CuttingProxy: c, trips: c.RoundTrips}, nil
}

// Traffic is the traffic of one request.
type Traffic struct {
	Trips    int // round trips, one after the other
	ToServer int // bytes
	ToClient int
}

// A Cost is the cost of the requests of one kind.
type Cost struct {
	Traffic
	Written // for each request
}

// A Report holds the costs of a system's requests.
type Report struct {
	Name          string
	Command       Cost // a new command: its claim and its settlement
	Repeat        Cost // by the process that ran the command
	ForeignRepeat Cost // by another process, for the first time
}

// body is the result of every command.
var body = strings.Repeat("x", 500)

// A process is a guard on a store of its own.
type process struct {
	guard *onlyonce.Guard
	close func()
}

func (s *System) start(ctx context.Context, through *Meter) (process, error) {
	store, closeStore, err := s.Open(ctx, through)
	if err != nil {
		return process{}, err
	}
	return process{onlyonce.New(store, onlyonce.Config{Keep: time.Hour}), closeStore}, nil
}

// request sends a keyed request, which runs the command if that is new.
func (p process) request(ctx context.Context, key string) error {
	got, err := onlyonce.Do(ctx, p.guard, onlyonce.Request{
		ID:          onlyonce.ID{Tenant: "acme", Operation: "POST /v1/orders", Key: key},
		Fingerprint: onlyonce.Fingerprint([]byte(key)),
	}, func(context.Context) (string, error) { return body, nil })
	if err == nil && got.Value != body {
		return fmt.Errorf("the response has %d bytes, want %d", len(got.Value), len(body))
	}
	return err
}

// Measure measures requests one after the other. It reports the median of the round trips of
// samples requests, and the minimum of their bytes, which leaves out work that a store does
// from time to time, such as reading the clock once a second. Writes are counted over commands
// requests.
func (s *System) Measure(ctx context.Context, samples, commands int) (*Report, error) {
	r := &Report{Name: s.Name}
	if err := s.measureTraffic(ctx, r, samples); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	if err := s.measureWrites(ctx, r, commands); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return r, nil
}

func (s *System) measureTraffic(ctx context.Context, r *Report, samples int) error {
	if s.Meter == nil {
		return nil
	}
	meter, err := s.Meter()
	if err != nil {
		return err
	}
	defer meter.Close()
	var both [2]process
	for i := range both {
		if both[i], err = s.start(ctx, meter); err != nil {
			return err
		}
		defer both[i].close()
	}
	const warmUp = 8 // requests that prepare statements and load scripts
	run := rand.Text()
	for _, step := range []struct {
		by   process
		cost *Cost
	}{{both[0], &r.Command}, {both[0], &r.Repeat}, {both[1], &r.ForeignRepeat}} {
		var all []Traffic
		for i := range warmUp + samples {
			meter.trips()
			meter.Count()
			if err := step.by.request(ctx, fmt.Sprint(run, i)); err != nil {
				return err
			}
			trips, bytes := meter.trips(), meter.Count()
			if i >= warmUp {
				all = append(all, Traffic{trips, bytes[faults.ToServer], bytes[faults.ToClient]})
			}
		}
		step.cost.Traffic = Traffic{
			Trips:    median(all, func(p Traffic) int { return p.Trips }),
			ToServer: least(all, func(p Traffic) int { return p.ToServer }),
			ToClient: least(all, func(p Traffic) int { return p.ToClient }),
		}
	}
	return nil
}

// median returns the median. A round trip may be missing from one request if the client sends
// something else on its connection at the same time.
func median(all []Traffic, of func(Traffic) int) int {
	slices.SortFunc(all, func(a, b Traffic) int { return of(a) - of(b) })
	return of(all[len(all)/2])
}

func least(all []Traffic, of func(Traffic) int) int {
	first := slices.MinFunc(all, func(a, b Traffic) int { return of(a) - of(b) })
	return of(first)
}

func (s *System) measureWrites(ctx context.Context, r *Report, commands int) error {
	if s.Written == nil {
		return nil
	}
	run := rand.Text()
	for _, step := range []*Cost{&r.Command, &r.ForeignRepeat} {
		before, err := s.Written(ctx)
		if err != nil {
			return err
		}
		p, err := s.start(ctx, nil)
		if err != nil {
			return err
		}
		for i := range commands {
			err = errors.Join(err, p.request(ctx, fmt.Sprint(run, i)))
		}
		p.close()
		if err != nil {
			return err
		}
		after, err := s.Written(ctx)
		if err != nil {
			return err
		}
		n := float64(commands)
		step.Written = Written{(after.Writes - before.Writes) / n, (after.Log - before.Log) / n, (after.Data - before.Data) / n}
	}
	return nil
}
