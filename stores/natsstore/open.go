package natsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// A Config has the settings of a store. The zero Config is ready to use.
type Config struct {
	// Stream is the name of the stream that has the records, and the first token of its
	// subjects, such as "onlyonce.records.3f.…". Two stores with different names share
	// nothing. It must not contain blanks, dots, slashes or wildcards. Default:
	// "onlyonce".
	Stream string

	// Replicas is how many servers of a cluster keep the records: 1, 3 or 5. Migrate creates
	// the stream with this number, and a stream with fewer is a finding. Default: 1.
	Replicas int

	// ClockSkew is by how much the clocks of two servers of the cluster may differ. A
	// lease or a record that began under one leader of the stream ends that much later
	// under another. It does not matter while the leader stays the same, unless only one
	// server of a cluster has the stream: it does not say since when. Default: 1 second.
	ClockSkew time.Duration

	// Timeout is how long a call tries to reach the stream, unless its context ends
	// earlier. The election of a new leader takes some seconds. Default: 10 seconds.
	Timeout time.Duration

	// System is a connection to the system account, with which Diagnose reads the
	// sync_interval of the servers. An ordinary account can't see it. Default: none.
	System *nats.Conn

	// AcceptRisks has the names of findings (see Diagnose) that Open accepts.
	AcceptRisks []string
}

// These are the defaults of a Config.
const (
	DefaultStream    = "onlyonce"
	DefaultReplicas  = 1
	DefaultClockSkew = time.Second
	DefaultTimeout   = 10 * time.Second
)

// A Store keeps records in a stream. It is safe for concurrent use.
type Store struct {
	stream        *stream
	replicas      int
	skew          time.Duration
	timeout       time.Duration
	system        *nats.Conn
	subscriptions *waiters.Subscriptions
	open          *openCommands
	recent        record.Recent[leased] // by this process
}

var (
	_ onlyonce.Store     = (*Store)(nil)
	_ onlyonce.Lister    = (*Store)(nil)
	_ onlyonce.Waiter    = (*Store)(nil)
	_ onlyonce.Resolver  = (*Store)(nil)
	_ onlyonce.Diagnoser = (*Store)(nil)
)

// oldest is the oldest version of the server that keeps a message for a time of its own.
const oldest = "2.11"

func (cfg Config) check() error {
	switch name := cfg.stream(); {
	case strings.ContainsAny(name, " \t\r\n.*>/\\"):
		return fmt.Errorf("the Stream %q has a blank, a dot, a slash or a wildcard, which no stream's name may have: leave it out", name)
	case cfg.Replicas < 0 || cfg.Replicas > 5 || cfg.Replicas == 2 || cfg.Replicas == 4: // an even number survives no more losses than one less
		return fmt.Errorf("the Config has %d Replicas: set it to 1, 3 or 5, or leave it 0 for 1", cfg.Replicas)
	case cfg.ClockSkew < 0 || cfg.Timeout < 0:
		return fmt.Errorf("the Config has a ClockSkew of %v and a Timeout of %v: neither may be negative", cfg.ClockSkew, cfg.Timeout)
	}
	return engine.Reject(nil, cfg.AcceptRisks, risks)
}

func (cfg Config) stream() string { return cmp.Or(cfg.Stream, DefaultStream) }

func (cfg Config) store(ctx context.Context, js jetstream.JetStream) (*Store, error) {
	if js == nil {
		panic("natsstore: there is no JetStream: pass what jetstream.New returned")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	stream, err := newStream(ctx, js, cfg.stream())
	if err != nil {
		return nil, err
	}
	return &Store{
		stream: stream, subscriptions: waiters.NewSubscriptions(stream.listen), open: newOpenCommands(), system: cfg.System,
		replicas: cmp.Or(cfg.Replicas, DefaultReplicas), skew: cmp.Or(cfg.ClockSkew, DefaultClockSkew), timeout: cmp.Or(cfg.Timeout, DefaultTimeout),
	}, nil
}

// Migrate creates the stream, and the message without which no claim of a new command is
// granted, and reports whether the message was missing. Call it when you set up the server,
// or once you know why it has lost its records, not at every start. It never deletes or
// changes anything: an existing stream of that name keeps its settings. It rejects a client
// whose servers belong to more than one cluster.
func Migrate(ctx context.Context, js jetstream.JetStream, cfg Config) (made bool, err error) {
	s, err := cfg.store(ctx, js)
	if err == nil {
		made, err = s.migrate(ctx)
	}
	return made, wrap("migrate", err)
}

func (s *Store) migrate(ctx context.Context) (made bool, err error) {
	old, err := s.stream.version(ctx)
	switch {
	case err != nil:
		return false, err
	case old != nil:
		return false, errors.New(old.String())
	}
	if err := s.rejectMixed(ctx, true); err != nil {
		return false, err
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		err := s.stream.ask(ctx, func(ctx context.Context) error {
			_, err := within(ctx, s.stream.places, func() (jetstream.Stream, error) {
				return s.stream.js.CreateStream(ctx, jetstream.StreamConfig{
					Name: s.stream.name, Subjects: []string{s.stream.subjects.all()}, Description: "the records of Onlyonce",
					Replicas: s.replicas, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
					MaxMsgsPerSubject: 1, AllowMsgTTL: true, DenyDelete: true, DenyPurge: true,
				})
			})
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		_, err = s.stream.put(ctx, s.stream.subjects.made(), 0, make(nats.Header), nil, 0)
		if errors.Is(err, errConflict) {
			return s.stream.made(ctx)
		}
		made = made || err == nil || doubtful(err)
		return err
	})
	if err == nil {
		err = s.rejectMixed(ctx, false)
	}
	return made && err == nil, err
}

// rejectMixed returns an error if the client's servers belong to more than one cluster.
func (s *Store) rejectMixed(ctx context.Context, fresh bool) error {
	f, err := s.stream.mixed(ctx, fresh)
	if f != nil {
		return engine.Reject([]onlyonce.Finding{*f}, nil, risks)
	}
	return err
}

// Open opens a store on a stream that Migrate has created. It rejects a server or a stream
// whose settings would break the promise (see Diagnose), unless the risk is
// accepted, and a user who lacks a permission without which no command can run. The
// connection stays the caller's: close it after the store.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Store, error) {
	s, err := cfg.store(ctx, js)
	if err != nil {
		return nil, wrap("open", err)
	}
	findings, err := s.diagnose(ctx, cfg.AcceptRisks)
	if err == nil {
		err = engine.Reject(findings, cfg.AcceptRisks, risks)
	}
	if err == nil {
		err = s.permitted(ctx)
	}
	if err != nil {
		return nil, wrap("open", err)
	}
	return s, nil
}

// Close ends the store's subscriptions. It does not close the connection.
func (s *Store) Close() error {
	s.subscriptions.Close()
	return nil
}
