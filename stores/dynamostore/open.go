package dynamostore

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A Config has the settings of a store. The zero Config is ready to use.
type Config struct {
	// Table is the name of the table. It contains nothing but the records of one store.
	// Default: "onlyonce".
	Table string

	// ClockSkew is by how much the clocks of two of DynamoDB's servers, and so the Dates of
	// their responses, may differ. A lease or a record ends that much later. It is at most
	// half of Timeout. Default: 1 second.
	ClockSkew time.Duration

	// Timeout is how long a call tries to reach DynamoDB, unless its context ends earlier.
	// Within it, requests that were throttled are repeated with pauses that grow to 1
	// second. Default: 10 seconds.
	Timeout time.Duration

	// AcceptRisks has the names of findings (see Diagnose) that Open accepts.
	AcceptRisks []string
}

// These are the defaults of a Config.
const (
	DefaultTable     = "onlyonce"
	DefaultClockSkew = time.Second
	DefaultTimeout   = 10 * time.Second
)

// A Store keeps records in a table. It is safe for concurrent use.
type Store struct {
	client    *dynamodb.Client
	table     string
	timeout   time.Duration
	clock     *clock
	mark      mark
	seenCache record.SeenCache
	recent    record.Recent[stored]
}

var (
	_ onlyonce.TxStore[*Tx] = (*Store)(nil)
	_ onlyonce.Lister       = (*Store)(nil)
	_ onlyonce.Resolver     = (*Store)(nil)
	_ onlyonce.Diagnoser    = (*Store)(nil)
)

// tableForm matches the names that DynamoDB accepts for a table.
var tableForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)

func (cfg Config) check() error {
	timeout := cmp.Or(cfg.Timeout, DefaultTimeout)
	switch name := cmp.Or(cfg.Table, DefaultTable); {
	case !tableForm.MatchString(name):
		return fmt.Errorf("the Table %q is not the name of a table: write 3 to 255 letters, digits, dots, hyphens or underscores", name)
	case cfg.ClockSkew < 0 || cfg.Timeout < 0:
		return fmt.Errorf("the Config has a ClockSkew of %v and a Timeout of %v: neither may be negative", cfg.ClockSkew, cfg.Timeout)
	case cmp.Or(cfg.ClockSkew, DefaultClockSkew) > timeout/2:
		return fmt.Errorf("the Config has a ClockSkew of %v and a Timeout of %v: make the Timeout at least twice as long", cmp.Or(cfg.ClockSkew, DefaultClockSkew), timeout)
	}
	return engine.Reject(nil, cfg.AcceptRisks, risks)
}

func (cfg Config) store(client *dynamodb.Client) (*Store, error) {
	if client == nil {
		panic("dynamostore: there is no client: pass what dynamodb.NewFromConfig returned")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Store{
		table: cmp.Or(cfg.Table, DefaultTable), timeout: cmp.Or(cfg.Timeout, DefaultTimeout),
		clock: newClock(cmp.Or(cfg.ClockSkew, DefaultClockSkew)),
	}
	// The store repeats requests itself, because it must know which of them may have taken
	// effect.
	s.client = dynamodb.New(client.Options(), func(o *dynamodb.Options) {
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.APIOptions = append(slices.Clone(o.APIOptions), s.clock.watch)
	})
	return s, nil
}

// Open opens a store on a table that Migrate, or your own tool, has created and Migrate has
// prepared. It rejects a table whose settings would break the promise (see Diagnose), unless
// the risk is accepted, and a user who lacks a permission without which no command can run.
// The client stays the caller's.
func Open(ctx context.Context, client *dynamodb.Client, cfg Config) (*Store, error) {
	s, err := cfg.store(client)
	if err != nil {
		return nil, wrap("open", err)
	}
	findings, err := s.diagnose(ctx)
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

// Close does nothing: the store has no connections of its own.
func (s *Store) Close() error { return nil }
