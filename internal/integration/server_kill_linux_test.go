package integration

import (
	"maps"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// killClients ask in each way at the same time.
const killClients = 16

// kills is how often each server is killed.
const kills = 5

func TestServerKill_AKilledServerLosesAndDoublesNothing(t *testing.T) {
	needs.Time(t)
	for _, k := range keepers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			server := newOwnServer(t, k.server)
			killUnderLoad(t, server, server.newDatabase(t), k.open, false)
		})
	}
}

func TestServerKill_APoolThatDoesNotWaitForTheDiskLosesNoResponse(t *testing.T) {
	needs.Time(t)
	for _, k := range keepers {
		if k.server == faults.PostgreSQL {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				server := newOwnServer(t, faults.PostgreSQL)
				killUnderLoad(t, server, server.newDatabase(t).with("synchronous_commit=off"), k.open, true)
			})
		}
	}
}

func killUnderLoad(t *testing.T, server *ownServer, d ownDatabase, open opener, rowsMayBeLost bool) {
	t.Helper()
	l := newLoad(t, server, d, open)
	clients := l.crowd(killClients, 2, byDo, byDoTx)
	for range kills {
		l.disturb()
	}
	l.finish(clients)
	t.Logf("%d keys, %d answers, %d attempts without one, %d answers that could not be kept", len(l.answers), l.answered.Load(), l.failed.Load(), len(l.unrecorded))
	l.check(rowsMayBeLost)
}

// Clients without keys, on the same servers and as often disturbed, show that
// the tests above can fail.
func TestServerKill_AKilledServerDoublesWhatHasNoKey(t *testing.T) {
	for _, k := range keepers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			server := newOwnServer(t, k.server)
			controlFails(t, server, server.newDatabase(t), k.open, "paid twice", func(rows []string, _ bool) bool { return len(rows) > 1 })
		})
	}
}

func TestServerKill_AKilledServerLosesWhatDoesNotWaitForTheDisk(t *testing.T) {
	server := newOwnServer(t, faults.PostgreSQL)
	d := server.newDatabase(t).with("synchronous_commit=off")
	controlFails(t, server, d, keepers[0].open, "answered and lost", func(rows []string, answered bool) bool { return answered && len(rows) == 0 })
}

// controlFails disturbs plain clients until something is wrong with the rows of
// one of their keys.
func controlFails(t *testing.T, server *ownServer, d ownDatabase, open opener, what string, wrong func(rows []string, answered bool) bool) {
	t.Helper()
	l := newLoad(t, server, d, open)
	clients := l.crowd(2*killClients, 1, byPlain)
	defer l.finish(clients)
	for kill := range 40 {
		l.disturb()
		l.Lock()
		before := maps.Clone(l.answers) // later responses may not be among the rows
		l.Unlock()
		paid, found := d.paid(t), 0
		for key, answers := range before {
			if wrong(paid[key], len(answers) > 0) {
				found++
			}
		}
		if found > 0 {
			t.Logf("%d of %d keys were %s after %d kills", found, len(before), what, kill+1)
			return
		}
	}
	t.Errorf("no key was %s", what)
}
