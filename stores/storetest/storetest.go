// Package storetest is the specification of a store: the rules of onlyonce.Store, as
// tests for every store.
//
// A store's test calls Run. It also calls RunTx if the store is an
// onlyonce.TxStore, and RunClock if its clock is not that of the calling
// process.
//
// No rule depends on how fast the store is. A lease that must be alive is ten minutes
// long. A lease that must lapse is short, and the rule waits until the store reports that
// it has lapsed.
package storetest

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// Run tests that the stores returned by open follow the rules. Each call of
// open must return a store without records and clean up with t.Cleanup. If a
// store implements more than onlyonce.Store (Purger, Lister, Counter, Resolver,
// Auditor, Waiter),
// that is tested, too.
func Run(t *testing.T, open func(t *testing.T) onlyonce.Store) {
	powers := open(t)
	for _, g := range groups {
		if g.missing != nil && g.missing(powers) {
			t.Logf("not tested: %s, for the store %T has no such method", g.name, powers)
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) {
					r.check(newStoreTest(t, open(t)))
				})
			}
		})
	}
}

// A rule is a statement that holds for every store, and its test.
type rule struct {
	name  string
	check func(t *storeTest)
}

// A group holds the rules about one subject.
type group struct {
	name    string
	missing func(onlyonce.Store) bool // reports that a store lacks the feature that the group tests; nil: every store has it
	rules   []rule
}

var groups = []group{
	{"claim", nil, claimRules},
	{"fingerprint", nil, fingerprintRules},
	{"attempt", nil, attemptRules},
	{"fence", nil, fenceRules},
	{"lease", nil, leaseRules},
	{"summary", nil, summaryRules},
	{"settle", nil, settleRules},
	{"walk", nil, walkRules},
	{"release", nil, releaseRules},
	{"keep", nil, keepRules},
	{"lapsed", nil, lapsedRules},
	{"remember", nil, rememberRules},
	{"steps", nil, stepRules},
	{"result", nil, resultRules},
	{"id", nil, idRules},
	{"context", nil, contextRules},
	{"copy", nil, copyRules},
	{"race", nil, raceRules},
	{"purge", lacks[onlyonce.Purger], purgeRules},
	{"list", lacks[onlyonce.Lister], listRules},
	{"resolve", lacks[onlyonce.Resolver], resolveRules},
	{"cache", lacks[onlyonce.Resolver], cacheRules},
	{"count records", lacks[onlyonce.Counter], countRules},
	{"audit", lacks[onlyonce.Auditor], auditRules},
	{"wait", lacks[onlyonce.Waiter], waitRules},
	{"history", nil, historyRules},
}

func lacks[Power any](s onlyonce.Store) bool {
	_, ok := s.(Power)
	return !ok
}
