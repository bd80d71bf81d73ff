package onlyonce

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A cache holds records in memory that no claim can change any more, so that a replay need
// not ask the store. It evicts as SIEVE does: a hand goes from the oldest record to the
// newest, spares those that were replayed since it last passed them, and evicts the first
// that was not. One that it has spared may stay although nobody asks for it any more, but no
// longer than the maximum age. A nil cache holds nothing.
//
// All callers share the records that it returns, and never change them.
type cache struct {
	maxBytes int64
	maxAge   time.Duration

	mu             sync.RWMutex
	byID           map[ID]*cached
	bytes          int64
	oldest, newest *cached // the ends of the list, which is in the order of arrival
	hand           *cached // the next to be looked at for eviction; nil: the oldest
	forgot         time.Time
	sweeping       bool // a timer is set that removes expired records
}

// A cached record is a copy that shares no memory with the store or with a caller.
type cached struct {
	record       Record
	since        time.Time // from when KeepLeft counts
	until        time.Time // when it must not be replayed any more
	untilWall    int64     // the same, in nanoseconds since 1970
	size         int64
	replayed     atomic.Bool // since the hand last passed it
	older, newer *cached
}

// cachedCost is the memory of a cached record in addition to its text, its bytes, its header
// and its steps, with its share of the map.
const cachedCost = 768

// sweepBatch is how many records are removed at a time while callers may wait for the lock.
const sweepBatch = 512

// newCache returns the cache of a Config, or nil.
func newCache(cfg *Config) *cache {
	if cfg.CacheBytes == 0 {
		return nil
	}
	return &cache{maxBytes: cfg.CacheBytes, maxAge: cfg.CacheMaxAge, byID: make(map[ID]*cached)}
}

// clock returns the time, or the zero time if there is no cache that needs it.
func (c *cache) clock() time.Time {
	if c == nil {
		return time.Time{}
	}
	return time.Now()
}

// recall sets *rec to the record of id and reports true if the cache has it.
func (c *cache) recall(id ID, now time.Time, rec *Record) bool {
	if c == nil {
		return false
	}
	c.mu.RLock()
	e := c.byID[id]
	c.mu.RUnlock()
	if e == nil || e.ended(now) {
		return false
	}
	if !e.replayed.Load() {
		e.replayed.Store(true)
	}
	*rec = e.record
	if rec.KeepLeft > 0 {
		rec.KeepLeft -= now.Sub(e.since)
	}
	if rec.Result.Keep > 0 {
		rec.Result.Keep -= now.Sub(e.since)
	}
	return true
}

// ended reports whether the record must not be replayed any more. The monotonic clock may
// stand still while a machine is suspended, and the other one may be set back, so the record
// has ended as soon as one of them says so.
func (e *cached) ended(now time.Time) bool {
	return !now.Before(e.until) || now.UnixNano() >= e.untilWall
}

// put keeps a copy of a record that the store had at some time after asked, unless a claim
// may still change it. No claim made a record without an owner. The record's Keep counts
// from asked, and ends for the cache when three quarters of it have passed: the store's clock
// may be a quarter faster, as with a lease.
func (c *cache) put(rec *Record, asked time.Time) {
	if c == nil || !isFinal(rec.State, rec.Final) || rec.KeepLeft < 0 || rec.Owner == "" {
		return
	}
	age := c.maxAge
	for _, left := range [...]time.Duration{rec.KeepLeft, rec.Result.Keep} {
		if left > 0 {
			age = min(age, left-left/4)
		}
	}
	e := &cached{since: asked, until: asked.Add(age)}
	e.untilWall = e.until.UnixNano()
	text, data, values, rest := rec.lengths()
	if e.size = cachedCost + withSlack(text) + withSlack(data) + withSlack(values*stringSize) + rest; e.size > c.maxBytes || e.ended(time.Now()) {
		return
	}
	e.record = rec.copied(text, data, values)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !asked.After(c.forgot) {
		return
	}
	if was := c.byID[rec.ID]; was != nil {
		if was.record.Fence > rec.Fence || was.record.Fence == rec.Fence && !was.until.Before(e.until) {
			return
		}
		c.remove(was)
	}
	c.makeRoom(e.size)
	c.add(e)
}

// add makes e the newest record. The caller holds the lock, as for the methods below up to
// remove.
func (c *cache) add(e *cached) {
	c.byID[e.record.ID] = e
	c.bytes += e.size
	if e.older = c.newest; e.older != nil {
		e.older.newer = e
	} else {
		c.oldest = e
	}
	c.newest = e
	if !c.sweeping {
		c.sweeping = true
		time.AfterFunc(c.maxAge, c.sweep)
	}
}

// makeRoom removes the oldest records if they have ended, and then evicts others until there
// is room for so many bytes.
func (c *cache) makeRoom(size int64) {
	c.removeEnded(2)
	for c.bytes+size > c.maxBytes {
		e := c.hand
		if e == nil {
			e = c.oldest
		}
		for e.replayed.Swap(false) {
			if e = e.newer; e == nil {
				e = c.oldest
			}
		}
		c.hand = e
		c.remove(e)
	}
}

// removeEnded removes at most limit of the oldest records that have ended, and returns how
// many it removed.
func (c *cache) removeEnded(limit int) (n int) {
	for now := time.Now(); n < limit && c.oldest != nil && c.oldest.ended(now); n++ {
		c.remove(c.oldest)
	}
	return n
}

func (c *cache) remove(e *cached) {
	delete(c.byID, e.record.ID)
	c.bytes -= e.size
	if c.hand == e {
		c.hand = e.newer
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		c.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		c.newest = e.older
	}
}

// sweep removes expired records, so that they do not stay in memory when no more records
// arrive. A record ends before those that arrived earlier can be younger than the maximum age.
func (c *cache) sweep() {
	for again := true; again; {
		c.mu.Lock()
		again = c.removeEnded(sweepBatch) == sweepBatch
		if !again {
			if c.sweeping = c.oldest != nil; c.sweeping {
				time.AfterFunc(c.maxAge, c.sweep)
			}
		}
		c.mu.Unlock()
	}
}

// forget drops the record of id, and records that earlier calls are about to put.
func (c *cache) forget(id ID) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgot = time.Now()
	if e := c.byID[id]; e != nil {
		c.remove(e)
	}
}

// forgetAll drops every record, and records that earlier calls are about to put.
func (c *cache) forgetAll() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgot = time.Now()
	clear(c.byID)
	c.oldest, c.newest, c.hand, c.bytes = nil, nil, nil, 0
}

// Forget drops the record of the command that g keeps in memory (see Config.CacheBytes), so that the
// next request for it asks the store. Call it after the record was changed or deleted by
// other means than g, for example by Resolve. It does nothing if g keeps nothing.
func (g *Guard) Forget(id ID) {
	need("Forget", g != nil && g.store != nil, needGuard)
	g.cache.forget(id)
}

// cacheSettled keeps the record that the attempt has settled with s, which it sent after asked.
func (a *Attempt) cacheSettled(s Settlement, asked time.Time) {
	c := a.guard.cache
	if c == nil || s.State == "" {
		return
	}
	a.mu.Lock()
	rec := a.rec.Settled(s, asked.Round(0).UTC()) // close enough to the store's clock
	a.mu.Unlock()
	c.put(&rec, asked)
}

// stringSize is the size of a string without its text.
const stringSize = 16

// withSlack returns how much memory an allocation of n bytes takes at most.
func withSlack(n int) int64 { return int64(n + n/8 + 16) }

// The memory of a map, and of each name in it.
const (
	mapCost  = 512
	nameCost = 96
)

// lengths returns how many bytes of text and of data the record has, how many values its
// header has, and how many bytes its maps take.
func (r *Record) lengths() (text, data, values int, maps int64) {
	for _, s := range [...]string{r.ID.Tenant, r.ID.Operation, r.ID.Key, r.Summary, r.Owner, r.Error, r.Result.Ref, r.Result.Traceparent} {
		text += len(s)
	}
	data = len(r.Fingerprint) + len(r.Result.Body)
	for name, list := range r.Result.Header {
		text += len(name)
		values += len(list)
		for _, v := range list {
			text += len(v)
		}
	}
	for name, b := range r.Steps {
		text += len(name)
		data += len(b)
	}
	for _, n := range [...]int{len(r.Result.Header), len(r.Steps)} {
		if n > 0 {
			maps += mapCost + int64(n)*nameCost
		}
	}
	return text, data, values, maps
}

// copied returns a copy of the record, which shares no memory with r. The arguments are from
// lengths.
func (r *Record) copied(text, data, values int) Record {
	var t textCopier
	t.Grow(text)
	d := make(dataCopier, 0, data)
	c := *r
	c.ID = ID{t.copy(r.ID.Tenant), t.copy(r.ID.Operation), t.copy(r.ID.Key)}
	c.Summary, c.Owner, c.Error = t.copy(r.Summary), t.copy(r.Owner), t.copy(r.Error)
	if c.State = StateFailed; r.State == StateCompleted { // others are not final
		c.State = StateCompleted
	}
	c.Fingerprint = d.copy(r.Fingerprint)
	c.Result.Ref, c.Result.Traceparent = t.copy(r.Result.Ref), t.copy(r.Result.Traceparent)
	c.Result.Body = d.copy(r.Result.Body)
	if r.Result.Header != nil {
		all := make([]string, 0, values)
		c.Result.Header = make(map[string][]string, len(r.Result.Header))
		for name, list := range r.Result.Header {
			from := len(all)
			for _, v := range list {
				all = append(all, t.copy(v))
			}
			c.Result.Header[t.copy(name)] = slices.Clip(all[from:])
		}
	}
	if r.Steps != nil {
		c.Steps = make(map[string][]byte, len(r.Steps))
		for name, b := range r.Steps {
			c.Steps[t.copy(name)] = d.copy(b)
		}
	}
	return c
}

// A textCopier holds copies of strings in one piece of memory.
type textCopier struct{ strings.Builder }

func (t *textCopier) copy(s string) string {
	from := t.Len()
	t.WriteString(s)
	return t.String()[from:]
}

// A dataCopier holds copies of byte slices in one piece of memory.
type dataCopier []byte

func (d *dataCopier) copy(b []byte) []byte {
	if b == nil {
		return nil
	}
	from := len(*d)
	*d = append(*d, b...)
	return slices.Clip((*d)[from:])
}

// own returns a copy of the result whose header and body the caller may change.
func (r Result) own() Result {
	r.Body = slices.Clone(r.Body)
	r.Header = maps.Clone(r.Header)
	for name, values := range r.Header {
		r.Header[name] = slices.Clone(values)
	}
	return r
}
