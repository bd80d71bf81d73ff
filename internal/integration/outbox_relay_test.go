package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A logBroker is a broker that fails at random, and records the messages that it accepted.
type logBroker struct {
	mu    sync.Mutex
	ids   map[string]bool
	first map[string][]string // by key: payloads, when they came for the first time
	again int                 // how many came more than once
	lost  bool                // a response was
}

func (b *logBroker) Publish(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range messages {
		if rand.IntN(50) == 0 {
			errs[i] = errors.New("not now")
			continue
		}
		if b.ids[m.ID] {
			b.again++
		} else {
			b.first[m.Key] = append(b.first[m.Key], string(m.Payload))
		}
		b.ids[m.ID] = true
		if !b.lost || rand.IntN(50) == 0 {
			b.lost = true
			errs[i] = fmt.Errorf("%w: it took it, but its response was lost", outbox.ErrUnavailable)
		}
	}
	return errs
}

// A mortal is a relay's way to the broker, on which it may die.
type mortal struct {
	*logBroker
	die func()
}

func (m mortal) Publish(ctx context.Context, messages []outbox.Message) []error {
	if rand.IntN(8) == 0 {
		m.die()
	}
	return m.logBroker.Publish(ctx, messages)
}

// A mute queue forgets at times to write down what was published, as if the
// relay had died before.
type muteQueue struct{ outbox.Queue }

func (q muteQueue) Settle(ctx context.Context, owner string, v []outbox.Verdict) error {
	if rand.IntN(10) == 0 {
		return outbox.ErrLost // which a relay takes for the end of the matter
	}
	return q.Queue.Settle(ctx, owner, v)
}

func TestOutboxRelay_RelaysThatDieAndABrokerThatFailsLoseNothingAndKeepTheOrder(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		const keys, each = 7, 40
		b := &logBroker{ids: make(map[string]bool), first: make(map[string][]string)}
		ctx, cancel := context.WithCancel(t.Context())
		var relays, producers sync.WaitGroup
		for range 2 {
			relays.Go(func() {
				for ctx.Err() == nil {
					life, die := context.WithCancel(ctx)
					outbox.NewRelay(muteQueue{s.Outbox()}, mortal{b, die}, outbox.Config{
						Batch: 20, Lease: 500 * time.Millisecond, Backoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond, Grace: time.Millisecond,
					}).Run(life)
					die()
				}
			})
		}
		for k := range keys {
			producers.Go(func() {
				for i := range each {
					appendOne(t, s, db, outbox.Message{Topic: "t", Key: fmt.Sprint(k), Payload: []byte(fmt.Sprintf("%03d", i))})
				}
			})
		}
		producers.Wait()
		for deadline := time.Now().Add(2 * answerLimit); ; time.Sleep(10 * time.Millisecond) {
			lag, err := s.Outbox().Lag(t.Context())
			if err != nil || lag.Parked > 0 || time.Now().After(deadline) {
				t.Errorf("%+v, %v", lag, err)
				break
			}
			if lag.Waiting == 0 {
				break
			}
		}
		cancel()
		relays.Wait()
		for k := range keys {
			list := b.first[fmt.Sprint(k)]
			if len(list) != each || !slices.IsSorted(list) {
				t.Errorf("key %d: %s", k, strings.Join(list, " "))
			}
		}
		if b.again == 0 {
			t.Error("nothing came twice: nothing was tried")
		}
	})
}

func TestOutboxRelay_AnEventOfACommandThatFailsIsNotPublished(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := newConsumer(t, s, db)
		c.fail = errors.New("no stock")
		c.also = func(ctx context.Context, tx *sql.Tx) error {
			return s.Outbox().Append(ctx, tx, outbox.Message{Topic: "shipped"})
		}
		for range 2 {
			if _, err := c.handle("1"); err == nil {
				t.Error("it did not fail")
			}
		}
		wantWaiting(t, s, 0)
		c.fail = nil
		if _, err := c.handle("1"); err != nil {
			t.Error(err)
		}
		wantWaiting(t, s, 1)
	})
}

func wantWaiting(t *testing.T, s *sqlstore.Store, n int) {
	t.Helper()
	if lag, err := s.Outbox().Lag(t.Context()); err != nil || lag.Waiting != n {
		t.Errorf("%d wait, want %d, %v", lag.Waiting, n, err)
	}
}
