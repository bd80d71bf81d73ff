package sqlstore

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// Groups write the claims, and the settlements, of many callers as one
// statement each. While few callers are busy, each one's own statement is
// faster.
type groups struct {
	busy    atomic.Int64
	claims  queue[*groupedClaim]
	settles queue[*groupedSettle]
	release func()        // of what the groups hold; may be nil
	alone   chan struct{} // bounds how many callers go on alone after their group
	waits   record.Hints  // commands that others had to wait for: they are not to make a group wait
}

// A grouper writes many at once.
type grouper interface {
	// writeClaims inserts the records of new commands, and sets given and fence
	// of those it did insert.
	writeClaims(ctx context.Context, s *server, claims []*groupedClaim) error

	// writeSettles settles, and sets done of those it did settle, and doubt of
	// those it may have settled.
	writeSettles(ctx context.Context, s *server, settles []*groupedSettle) error
}

type groupedClaim struct {
	key    key
	claim  *onlyonce.Claim
	fence  int64 // as it was written, which is also when the record was created
	raised int64 // what the fence was raised to; 0: it was not
	given  bool
}

// record is what was given.
func (j *groupedClaim) record() onlyonce.Record {
	return record.Next(j.claim, nil, j.fence, max(j.fence, j.raised))
}

type groupedSettle struct {
	key        key
	hold       *onlyonce.Hold
	settlement *onlyonce.Settlement
	done       bool
	doubt      bool // it may have been settled although it is not done
}

const (
	fewCallers   = 16               // up to so many, each goes alone
	maxGroup     = 256              // bounds how long others wait for a group
	maxAlone     = 32               // how many of a group that failed go on at the same time
	groupTimeout = 15 * time.Second // a server that does not answer is given up
	maxGrouped   = 64 << 10         // bytes of a result that goes with others
)

func (s *server) group(g grouper) {
	s.groups = new(groups)
	s.groups.alone = make(chan struct{}, maxAlone)
	s.groups.claims = queue[*groupedClaim]{max: maxGroup, write: func(batch []*ticket[*groupedClaim]) (then func()) {
		write(&s.groups.claims, batch, func(ctx context.Context, jobs []*groupedClaim) error {
			return s.writeClaims(ctx, g, jobs)
		}, func(a, b *groupedClaim) int { return bytes.Compare(a.key.hash[:], b.key.hash[:]) })
		return nil
	}}
	s.groups.settles = queue[*groupedSettle]{max: maxGroup, write: func(batch []*ticket[*groupedSettle]) (then func()) {
		write(&s.groups.settles, batch, func(ctx context.Context, jobs []*groupedSettle) error {
			return g.writeSettles(ctx, s, jobs)
		}, func(a, b *groupedSettle) int { return bytes.Compare(a.key.hash[:], b.key.hash[:]) })
		return nil
	}}
}

func (g *groups) close() {
	if g == nil {
		return
	}
	g.claims.close()
	g.settles.close()
	if g.release != nil {
		g.release()
	}
}

// write writes the jobs of a batch in the order of their keys, so that two
// batches do not wait for each other. When that fails each goes on alone: one
// may be to blame.
func write[J any](q *queue[J], batch []*ticket[J], f func(context.Context, []J) error, order func(a, b J) int) {
	if len(batch) > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
		defer cancel()
		jobs := make([]J, len(batch))
		for i, t := range batch {
			jobs[i] = t.job
		}
		slices.SortFunc(jobs, order)
		_ = f(ctx, jobs)
	}
	for _, t := range batch {
		q.answer(t, nil)
	}
}

// writeClaims makes sure of the fences, too.
func (s *server) writeClaims(ctx context.Context, g grouper, jobs []*groupedClaim) error {
	began := time.Now()
	err := g.writeClaims(ctx, s, jobs)
	took := time.Since(began)
	if err != nil || took < record.Slow {
		return err
	}
	l := s.line(ctx)
	floor, err := l.number("floor")
	for _, j := range jobs {
		if !j.given || err == nil && j.fence > floor {
			continue
		}
		r, sure, _ := l.raiseAboveFloor(&j.key, record.Next(j.claim, nil, j.fence, j.fence), took)
		j.given, j.raised = sure, r.Fence // one that was not raised is recognised by its owner
	}
	return err
}

// grouped says whether a call goes with others. Done ends it.
func (g *groups) grouped(k *key) (yes bool, done func()) {
	if g == nil {
		return false, func() {}
	}
	return g.busy.Add(1) > fewCallers && !g.waits.Has(&k.hash), func() { g.busy.Add(-1) }
}

// solo waits for permission to run alone after a group did not do the job. done gives
// the permission back.
func (g *groups) solo(ctx context.Context, k *key) (done func(), err error) {
	select {
	case g.alone <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	return func() {
		<-g.alone
		if time.Since(began) > record.Slow {
			g.waits.Add(&k.hash)
		}
	}, nil
}

func (s *server) claimInGroup(ctx context.Context, k *key, c *onlyonce.Claim) (onlyonce.Record, error) {
	j := &groupedClaim{key: *k, claim: c}
	if err := s.groups.claims.do(ctx, newTicket(j)); err != nil {
		return onlyonce.Record{}, err
	}
	if j.given {
		return j.record(), nil
	}
	done, err := s.groups.solo(ctx, k)
	if err != nil {
		return onlyonce.Record{}, err
	}
	defer done()
	return s.line(ctx).claim(k, c)
}

func (s *server) settleInGroup(ctx context.Context, k *key, h *onlyonce.Hold, st *onlyonce.Settlement) error {
	j := &groupedSettle{key: *k, hold: h, settlement: st}
	if err := s.groups.settles.do(ctx, newTicket(j)); err != nil {
		return err
	}
	if j.done {
		s.dialect.settled(k, h.Fence)
		return nil
	}
	done, err := s.groups.solo(ctx, k)
	if err != nil {
		return err
	}
	defer done()
	return s.line(ctx).settle(*h, *st, j.doubt)
}

// groupable says whether a settlement is small and plain enough to go with
// others.
func groupable(st *onlyonce.Settlement) bool {
	return st.State != "" && len(st.Result.Body)+len(st.Error) <= maxGrouped
}

// byOwner finds a job by the owner that a statement returned.
func byOwner[J any](jobs []J, owner func(J) string) map[string]J {
	found := make(map[string]J, len(jobs))
	for _, j := range jobs {
		found[owner(j)] = j
	}
	return found
}

// sizeOf returns the least of the sizes of prepared statements that n rows fit
// into; the last row fills the rest.
func sizeOf(n int) int {
	for _, size := range groupSizes {
		if n <= size {
			return size
		}
	}
	return maxGroup
}

var groupSizes = []int{4, 8, 16, 24, 32, 48, 64, 96, 128, 192, maxGroup}
