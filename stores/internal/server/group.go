package server

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// Groups write the claims, and the settlements, of many callers as one
// statement each. While few callers are busy, each one's own statement is
// faster.
type groups struct {
	busy      atomic.Int64
	claims    *group.Queue[*GroupedClaim]
	settles   *group.Queue[*GroupedSettle]
	release   func()           // of the resources of the groups; may be nil
	soloSlots chan struct{}    // bounds how many callers continue alone after their group
	contended record.SeenCache // commands whose rows were locked for long: each is written alone, so that no group waits for them
}

// A Grouper writes many at once.
type Grouper interface {
	// WriteClaims inserts the records of new commands, and sets Granted and Fence in those
	// that it inserted. If it fails, it sets Doubt in those that it may have inserted.
	WriteClaims(ctx context.Context, s *Store, claims []*GroupedClaim) error

	// WriteSettles settles commands. It sets Done in those that it settled, and Doubt in
	// those that it may have settled.
	WriteSettles(ctx context.Context, s *Store, settles []*GroupedSettle) error
}

// A GroupedClaim is a claim on a new command that is written with others.
type GroupedClaim struct {
	Key     record.Key
	Claim   *onlyonce.Claim
	Fence   int64 // as it was written, which is also when the record was created
	raised  int64 // the raised fence; 0: it was not raised
	Granted bool
	Doubt   bool // its row may have been written although it is not granted
}

// record returns the record of the claim that was granted.
func (j *GroupedClaim) record() onlyonce.Record {
	return record.Next(j.Claim, nil, j.Fence, max(j.Fence, j.raised))
}

// A GroupedSettle is a settlement that is written with others.
type GroupedSettle struct {
	Key        record.Key
	Hold       *onlyonce.Hold
	Settlement *onlyonce.Settlement
	Done       bool
	Doubt      bool // it may have been settled although it is not done
}

// The limits of groups.
const (
	fewCallers = 16  // up to so many callers, each writes alone
	maxGroup   = 256 // callers in a group: it bounds how long others wait for it
	maxSolo    = 32  // how many callers whose group failed continue at the same time
)

// Group lets callers write in groups. release, which may be nil, releases what the
// grouper holds when the store is closed.
func (s *Store) Group(g Grouper, release func()) {
	s.groups = &groups{release: release}
	s.groups.soloSlots = make(chan struct{}, maxSolo)
	s.groups.claims = group.New(group.Config[*GroupedClaim]{Max: maxGroup, Write: func(_ int, batch []*group.Ticket[*GroupedClaim]) (then func()) {
		write(s, s.groups.claims, batch, func(ctx context.Context, jobs []*GroupedClaim) error {
			return s.writeClaims(ctx, g, jobs)
		}, func(a, b *GroupedClaim) int { return bytes.Compare(a.Key.Hash[:], b.Key.Hash[:]) })
		return nil
	}})
	s.groups.settles = group.New(group.Config[*GroupedSettle]{Max: maxGroup, Write: func(_ int, batch []*group.Ticket[*GroupedSettle]) (then func()) {
		write(s, s.groups.settles, batch, func(ctx context.Context, jobs []*GroupedSettle) error {
			return g.WriteSettles(ctx, s, jobs)
		}, func(a, b *GroupedSettle) int { return bytes.Compare(a.Key.Hash[:], b.Key.Hash[:]) })
		return nil
	}})
}

func (g *groups) close() {
	if g == nil {
		return
	}
	g.claims.Close()
	g.settles.Close()
	if g.release != nil {
		g.release()
	}
}

// write writes the jobs of a batch in the order of their keys, so that two batches do not
// wait for each other. If that fails, each job runs alone, because one may have made the
// others fail.
func write[J any](s *Store, q *group.Queue[J], batch []*group.Ticket[J], f func(context.Context, []J) error, order func(a, b J) int) {
	if len(batch) > 1 {
		ctx, cancel := context.WithTimeoutCause(context.Background(), StepTimeout, errSilent)
		defer cancel()
		jobs := make([]J, len(batch))
		for i, t := range batch {
			jobs[i] = t.Job
		}
		slices.SortFunc(jobs, order)
		if err := f(ctx, jobs); err != nil {
			s.leave(ctx, err)
		}
	}
	for _, t := range batch {
		q.Finish(t, nil)
	}
}

// writeClaims writes the claims and, if that was slow, raises their fences above the
// floor.
func (s *Store) writeClaims(ctx context.Context, g Grouper, jobs []*GroupedClaim) error {
	began := time.Now()
	err := g.WriteClaims(ctx, s, jobs)
	took := time.Since(began)
	for _, j := range jobs {
		j.Doubt = err != nil && j.Doubt || j.Granted
	}
	if err != nil || took < record.Slow {
		return err
	}
	l := s.Runner(ctx)
	floor, err := l.Number("floor")
	for _, j := range jobs {
		if !j.Granted || err == nil && j.Fence > floor {
			continue
		}
		r, sure, _ := l.raiseAboveFloor(&j.Key, record.Next(j.Claim, nil, j.Fence, j.Fence), took)
		j.Granted, j.raised = sure, r.Fence // a claim whose fence was not raised finds its row by its owner
	}
	return err
}

// grouped reports whether a call goes with others. done ends the call.
func (g *groups) grouped(k *record.Key) (yes bool, done func()) {
	if g == nil {
		return false, func() {}
	}
	return g.busy.Add(1) > fewCallers && !g.contended.Has(&k.Hash), func() { g.busy.Add(-1) }
}

// solo waits for a place among the callers that run alone after their group failed. done
// gives the place back.
func (g *groups) solo(ctx context.Context, k *record.Key) (done func(), err error) {
	select {
	case g.soloSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	return func() {
		<-g.soloSlots
		if time.Since(began) > record.Slow {
			g.contended.Add(&k.Hash)
		}
	}, nil
}

func (s *Store) claimInGroup(ctx context.Context, k *record.Key, c *onlyonce.Claim) (onlyonce.Record, error) {
	j := &GroupedClaim{Key: *k, Claim: c}
	if err := s.groups.claims.Do(ctx, j); err != nil {
		return onlyonce.Record{}, err
	}
	if j.Granted {
		return j.record(), nil
	}
	done, err := s.groups.solo(ctx, k)
	if err != nil {
		return onlyonce.Record{}, err
	}
	defer done()
	return s.Runner(ctx).claim(k, c, j.Doubt)
}

func (s *Store) settleInGroup(ctx context.Context, k *record.Key, h *onlyonce.Hold, st *onlyonce.Settlement) error {
	j := &GroupedSettle{Key: *k, Hold: h, Settlement: st}
	if err := s.groups.settles.Do(ctx, j); err != nil {
		return err
	}
	if j.Done {
		s.dialect.Settled(k, h.Fence)
		return nil
	}
	done, err := s.groups.solo(ctx, k)
	if err != nil {
		return err
	}
	defer done()
	return s.settleAlone(ctx, h, st, j.Doubt)
}

// groupable reports whether a settlement is small enough to go with others. A release
// goes alone.
func groupable(st *onlyonce.Settlement) bool {
	return st.State != "" && record.ResultSize(st) <= group.LongestShared
}

// ByOwner finds a job by the owner that a statement returned.
func ByOwner[J any](jobs []J, owner func(J) string) map[string]J {
	found := make(map[string]J, len(jobs))
	for _, j := range jobs {
		found[owner(j)] = j
	}
	return found
}

// GroupSize returns the smallest size of a prepared statement that n rows fit into. The
// last row fills the rest.
func GroupSize(n int) int {
	for _, size := range groupSizes {
		if n <= size {
			return size
		}
	}
	return maxGroup
}

var groupSizes = []int{4, 8, 16, 24, 32, 48, 64, 96, 128, 192, maxGroup}
