package integration

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A load is many clients, each of which asks with new keys until it gets a
// response, while the server is killed and its connections are cut.
type load struct {
	*notes
	t        *testing.T
	server   *ownServer
	database ownDatabase
	open     opener
	rng      *mathrand.Rand
	away     time.Duration // the longest that the server was

	stopped  atomic.Bool
	answered atomic.Int64 // how often
	failed   atomic.Int64 // attempts that ended without a response
}

func newLoad(t *testing.T, server *ownServer, d ownDatabase, open opener) *load {
	t.Helper()
	return &load{notes: newNotes(), t: t, server: server, database: d, open: open, rng: seeded(t)}
}

func (l *load) newPayer() payer {
	l.t.Helper()
	return l.open(l.t, l.database, l.notes)
}

// crowd starts clients in each of the ways, two for every key if they are to be
// in each other's way.
func (l *load) crowd(clients, perKey int, ways ...string) (done *sync.WaitGroup) {
	l.t.Helper()
	done = new(sync.WaitGroup)
	p := l.newPayer()
	l.t.Cleanup(func() {
		l.stopped.Store(true)
		done.Wait()
	})
	for _, name := range ways {
		for n := range clients {
			done.Go(func() { l.client(fmt.Sprintf("%s %d", name, n/perKey), p.ways[name]) })
		}
	}
	return done
}

// client asks with one new key after the other. Of every eighth it does not
// insist on a response.
func (l *load) client(name string, w way) {
	for n := 0; !l.stopped.Load(); n++ {
		key, insist := fmt.Sprintf("%s %d", name, n), n%8 != 7
		l.add(l.answers, key)
		if err := l.ask(key, w, insist); err != nil && insist {
			l.t.Error(err)
			return
		}
	}
}

// wayOf is the way of a key.
func wayOf(key string) string {
	way, _, _ := strings.Cut(key, " ")
	return way
}

// ask asks until there is a response, or once.
func (l *load) ask(key string, w way, insist bool) error {
	ctx, cancel := context.WithTimeout(l.t.Context(), answerLimit)
	defer cancel()
	for {
		answer, err := w(ctx, key, rand.Text())
		if err == nil {
			l.add(l.answers, key, answer)
			l.answered.Add(1)
			return nil
		}
		l.failed.Add(1)
		final := errors.Is(err, onlyonce.ErrMismatch) || errors.Is(err, onlyonce.ErrFailed) || errors.Is(err, onlyonce.ErrCorrupt)
		if final || !insist || ctx.Err() != nil {
			return fmt.Errorf("%s was not answered: %w", key, err)
		}
		time.Sleep(mathrand.N(50 * time.Millisecond))
	}
}

// disturb waits until the clients have their responses, cuts their connections, waits
// again, and kills the server.
func (l *load) disturb() {
	l.t.Helper()
	l.more()
	l.server.cut(l.t)
	l.more()
	killed := time.Now()
	l.server.restart(l.t)
	l.away = max(l.away, time.Since(killed))
}

// more waits for more responses, and a moment in which others are on their way.
func (l *load) more() {
	l.t.Helper()
	until := l.answered.Load() + 50 + l.rng.Int64N(200)
	for end := time.Now().Add(answerLimit); l.answered.Load() < until && !l.t.Failed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("the clients were not answered in %v", answerLimit)
		}
	}
	time.Sleep(time.Duration(l.rng.Int64N(int64(5 * time.Millisecond))))
}

// finish lets the clients come to an end. What there is after it is read from
// the disk alone.
func (l *load) finish(clients *sync.WaitGroup) {
	l.t.Helper()
	l.stopped.Store(true)
	clients.Wait()
	l.server.restart(l.t)
}

// check compares the responses with the stored rows. A row that committed by
// itself may be lost if the caller's pool is set to that.
func (l *load) check(rowsMayBeLost bool) {
	t := l.t
	t.Helper()
	p := l.newPayer()
	l.checkRecords(p)
	l.askAgain(p)
	paid := l.database.paid(t)
	for key := range paid {
		if _, asked := l.answers[key]; !asked {
			t.Errorf("%s was paid, and nobody asked for it", key)
		}
	}
	for key, answers := range l.answers {
		if l.unrecorded[key] == nil {
			l.checkKey(key, answers, paid[key], rowsMayBeLost)
		}
	}
	if n := len(l.unrecorded); n*20 > len(l.answers) && l.away < killLease/2 {
		t.Errorf("the responses to %d of %d keys could not be kept, though the server was away for %v at most", n, len(l.answers), l.away)
	}
}

// checkKey compares all the responses to a key with its rows.
func (l *load) checkKey(key string, answers, rows []string, rowsMayBeLost bool) {
	for _, other := range answers {
		if other != answers[0] {
			l.t.Errorf("%s got %s, then %s", key, answers[0], other)
		}
	}
	if wayOf(key) == byDoTx {
		if len(rows) != 1 || rows[0] != answers[0] {
			l.t.Errorf("%s, which got %s, has the rows %v", key, answers[0], rows)
		}
		return
	}
	if ran := l.ran[key]; len(ran) != 1 || ran[0] != answers[0] {
		l.t.Errorf("%s, which got %s, ran to its end as %v", key, answers[0], ran)
	}
	if !rowsMayBeLost && !slices.Contains(rows, answers[0]) {
		l.t.Errorf("%s, which got %s, has lost its row: %v", key, answers[0], rows)
	}
}

// checkRecords checks the records of the clients' commands: every response is on record,
// and rows that commit together exist together.
func (l *load) checkRecords(p payer) {
	l.t.Helper()
	completed := make(map[string]string)
	for r, err := range p.records.List(l.t.Context(), onlyonce.Filter{State: onlyonce.StateCompleted}) {
		var answer string
		if err == nil {
			err = json.Unmarshal(r.Result.Body, &answer)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		completed[r.ID.Key] = answer
	}
	paid := l.database.paid(l.t)
	for key, answers := range l.answers {
		if len(answers) > 0 && l.unrecorded[key] == nil && completed[key] != answers[0] {
			l.t.Errorf("%s got %s, and its record says %q", key, answers[0], completed[key])
		}
		if rows := strings.Join(paid[key], " and "); wayOf(key) == byDoTx && rows != completed[key] {
			l.t.Errorf("%s has the row %q, and its record says %q", key, rows, completed[key])
		}
	}
}

// askAgain asks for every key once more.
func (l *load) askAgain(p payer) {
	keys := slices.Collect(maps.Keys(l.answers))
	var clients sync.WaitGroup
	for n := range 32 {
		clients.Go(func() {
			for ; n < len(keys); n += 32 {
				if err := l.ask(keys[n], p.ways[wayOf(keys[n])], true); err != nil {
					l.t.Error(err)
				}
			}
		})
	}
	clients.Wait()
}
