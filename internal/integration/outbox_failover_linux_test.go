package integration

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// An eventLog is a broker that notes the messages of each key when they come for the first time.
type eventLog struct {
	mu     sync.Mutex
	ids    map[string]bool
	events map[string][]string // by key: payloads
}

func (l *eventLog) Publish(_ context.Context, messages []outbox.Message) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		if !l.ids[m.ID] {
			l.ids[m.ID] = true
			l.events[m.Key] = append(l.events[m.Key], string(m.Payload))
		}
	}
	return nil
}

func (l *eventLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids)
}

// The relays and the commands are at work when the primary dies with what it has not sent to the server that takes
// over.
func TestOutboxRelay_FailoversLoseNoEventDoubleNoneAndKeepTheOrder(t *testing.T) {
	needs.Time(t)
	for name, c := range map[string]struct {
		kind    *faults.Kind
		pair    func(s *faults.Server, shared string) (*faults.Pair, error)
		waiting string // counts the commits that wait for the other server
	}{
		"PostgreSQL": {
			faults.PostgreSQL,
			func(s *faults.Server, _ string) (*faults.Pair, error) { return faults.NewStandbyPair(s, "*") },
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
		},
		"MariaDB": {
			faults.Replicated,
			func(s *faults.Server, shared string) (*faults.Pair, error) {
				return faults.NewReplicaPair(s, shared, true)
			},
			"SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys, rounds, perRound = 5, 3, 60
			server := newOwnServer(t, c.kind)
			d := server.newDatabase(t)
			d.migrated(t)
			pair, err := c.pair(server.Server, sharedDir(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := pair.Close(); err != nil {
					t.Error(err)
				}
			})
			clients := newCutter(t, server)
			s := openOn(t, d.through(server, clients).pool(t))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			log := &eventLog{ids: make(map[string]bool), events: make(map[string][]string)}
			var relays, producers sync.WaitGroup
			for range 2 {
				relays.Go(func() {
					outbox.NewRelay(s.Outbox(), log, outbox.Config{Batch: 10, Lease: 5 * time.Second, Timeout: 10 * time.Second, Grace: time.Millisecond}).Run(ctx)
				})
			}
			guard := onlyonce.NewTx(s, onlyonce.Config{Observer: onlyonce.DiscardEvents})
			made := make([]int, keys)
			producing, stop := context.WithCancel(ctx)
			for k := range keys {
				producers.Go(func() {
					for i := 0; producing.Err() == nil; i++ {
						event := fmt.Sprintf("%06d", i)
						req := onlyonce.Request{ID: onlyonce.ID{Operation: "event", Key: fmt.Sprint(k, " ", i)}, Fingerprint: onlyonce.Fingerprint([]byte(event))}
						for err := errBroken; err != nil; {
							if t.Context().Err() != nil {
								return
							}
							_, err = onlyonce.DoTx(t.Context(), guard, req, func(ctx context.Context, tx *sql.Tx) (string, error) {
								return event, s.Outbox().Append(ctx, tx, outbox.Message{Topic: "t", Key: fmt.Sprint(k), Payload: []byte(event)})
							})
						}
						made[k]++
					}
				})
			}
			for range rounds {
				seen := log.count()
				eventually(t, "events are published", func() bool { return log.count() >= seen+perRound })
				pair.CutOff()
				eventually(t, "commits wait", func() bool {
					var n int
					if err := pair.Primary.Admin.QueryRow(c.waiting).Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n > 1
				})
				if err := pair.Promote(); err != nil {
					t.Fatal(err)
				}
				clients.SetTarget(pair.Primary.Address())
				if err := pair.Follow(); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			producers.Wait()
			eventually(t, "every event is published", func() bool {
				lag, err := s.Outbox().Lag(t.Context())
				return err == nil && lag.Waiting == 0
			})
			cancel()
			relays.Wait()
			for k, n := range made {
				list := log.events[fmt.Sprint(k)]
				if len(list) != n || !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != n {
					t.Errorf("%d events of key %d were made, and published: %s", n, k, strings.Join(list, " "))
				}
			}
		})
	}
}
