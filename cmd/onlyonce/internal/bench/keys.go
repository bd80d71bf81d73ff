package bench

import (
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"math"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"
)

// A trackedKey is a key that was sent, with the known facts about its command.
type trackedKey struct {
	name     string
	of       *keySet
	made     time.Time
	mu       sync.Mutex
	runs     int
	done     time.Time // when the last run ended; its record is kept at least from then on
	response uint64    // its hash
	renewed  bool      // it ran again legitimately, because its record had expired
}

// A keySet chooses the keys of requests, new and repeated ones, and collects
// violations of the guarantee. It keeps only the latest keys.
type keySet struct {
	prefix     string
	pick       string
	duplicates float64
	keep       time.Duration
	seed       maphash.Seed

	mu             sync.Mutex
	latest         []*trackedKey // a ring
	oldest         int64         // number of the oldest key that may be repeated
	next           int64         // number of the next new key
	nextSequential int64         // number of the key that a sequential repeat uses
	sent           int64
	repeated       int64
	violations     []string // descriptions of the first ones
	violated       int64
}

const (
	repeatWindow    = 1 << 16 // how many keys may be repeated
	shownViolations = 5       // how many are described
)

func newKeySet(c *config, keep time.Duration) *keySet {
	return &keySet{
		prefix: "bench-" + strings.ToLower(rand.Text()[:10]), pick: c.keys, duplicates: c.duplicates, keep: keep,
		seed: maphash.MakeSeed(), latest: make([]*trackedKey, repeatWindow),
	}
}

// nextKey returns the key of the next request. The repeats are spread evenly among
// the requests.
func (b *keySet) nextKey(rnd *mathrand.Rand, now time.Time) *trackedKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := math.Floor(float64(b.sent) * b.duplicates)
	b.sent++
	if math.Floor(float64(b.sent)*b.duplicates) > before {
		if k := b.earlier(rnd, now); k != nil {
			b.repeated++
			return k
		}
	}
	k := &trackedKey{name: fmt.Sprintf("%s-%d", b.prefix, b.next), of: b, made: now}
	b.latest[b.next%repeatWindow] = k
	b.next++
	b.oldest = max(b.oldest, b.next-repeatWindow)
	return k
}

// earlier returns a key whose record will not expire soon, or nil.
func (b *keySet) earlier(rnd *mathrand.Rand, now time.Time) *trackedKey {
	for b.oldest < b.next && now.Sub(b.latest[b.oldest%repeatWindow].made) > b.keep/2 {
		b.oldest++
	}
	n := b.next - b.oldest
	if n == 0 {
		return nil
	}
	at := b.oldest
	switch b.pick {
	case keysUniform:
		at += rnd.Int64N(n)
	case keysZipf:
		at += int64(mathrand.NewZipf(rnd, 1.1, 1, uint64(n-1)).Uint64())
	case keysSequential:
		at = max(b.nextSequential, b.oldest)
		if at >= b.next {
			at = b.oldest
		}
		b.nextSequential = at + 1
	}
	return b.latest[at%repeatWindow]
}

// tally returns how many requests were sent, and how many of them repeats.
func (b *keySet) tally() (sent, repeated int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent, b.repeated
}

func (b *keySet) violate(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.violated++
	if len(b.violations) < shownViolations {
		b.violations = append(b.violations, fmt.Sprintf(format, args...))
	}
}

// broken returns how often the guarantee was broken, and describes the first cases.
func (b *keySet) broken() (int64, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.violated, b.violations
}

// recordRun records that the command runs, and the response that it will return.
func (k *trackedKey) recordRun(response string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs++
	if k.runs > 1 {
		if since := time.Since(k.done); since < k.of.keep*3/4 { // three quarters, because stores round
			k.of.violate("%s ran again, %v after its last run", k.name, since.Round(time.Millisecond))
		}
		k.renewed = true
	}
	k.response = maphash.String(k.of.seed, response)
	k.done = time.Now()
}

// check records a violation if the response is not that of a run that was seen.
func (k *trackedKey) check(response string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.runs == 0:
		k.of.violate("%s got a replay, and never ran", k.name)
	case !k.renewed && k.response != maphash.String(k.of.seed, response):
		k.of.violate("%s got a different response than the first time", k.name)
	}
}
