package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/redis/rueidis"
)

// One of sweepOneIn new commands rids its partition's index of entries whose records
// Redis has deleted. It looks at sweepCount entries: at twice as many as are added.
const (
	sweepOneIn = 32
	sweepCount = 64
)

// sweepSometimes sweeps the index and the set of open commands of a partition to which a
// command was added, without making its caller wait.
func (s *Store) sweepSometimes(ctx context.Context, partition byte) {
	if rand.IntN(sweepOneIn) != 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.sweeping.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
		defer cancel()
		// An entry that stays because of an error is found again.
		_ = s.sweep(ctx, partition)
		_ = s.sweepOpen(ctx, partition)
	})
}

// sweep looks at the next entries of an index. Its commands are arbitrary ones because
// these are never sent to replicas, which may have an entry and not yet its record.
func (s *Store) sweep(ctx context.Context, partition byte) error {
	index, swept := s.keys.index(partition), s.keys.swept(partition)
	from, err := s.command(ctx, "GET", swept).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		from = "-"
	case err != nil:
		return err
	default:
		from = "(" + from
	}
	entries, err := s.command(ctx, "XRANGE", index, from, "+", "COUNT", strconv.Itoa(sweepCount)).AsXRange()
	if err != nil {
		return err
	}
	exist := make(rueidis.Commands, len(entries))
	for i, e := range entries {
		exist[i] = s.client.B().Arbitrary("EXISTS").Keys(s.keys.tag(partition) + e.FieldValues["n"]).Build()
	}
	gone := []string{}
	for i, result := range s.client.DoMulti(ctx, exist...) {
		there, err := result.AsBool()
		if err != nil {
			return err
		}
		if !there {
			gone = append(gone, entries[i].ID)
		}
	}
	if len(gone) > 0 {
		if err := s.command(ctx, "XDEL", index, gone...).Error(); err != nil {
			return err
		}
	}
	if len(entries) < sweepCount {
		return s.command(ctx, "DEL", swept).Error()
	}
	return s.command(ctx, "SET", swept, entries[len(entries)-1].ID).Error()
}

// command runs a command about one key.
func (s *Store) command(ctx context.Context, name, key string, args ...string) rueidis.RedisResult {
	return s.client.Do(ctx, s.client.B().Arbitrary(name).Keys(key).Args(args...).Build())
}
