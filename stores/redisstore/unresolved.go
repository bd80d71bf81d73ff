package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// Unresolved counts the records whose outcome is unknown: those in the unknown state and
// those whose lease has lapsed. It also returns for how long the oldest of them has been
// unresolved. It reads the beginnings of these records and of those that were created since
// the previous call of any process; the first call reads those of all records.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	n, oldest, err = s.unresolved(ctx)
	return n, oldest, wrap("count unresolved records", s.explain(ctx, 0, err))
}

// dueCount is how many records of a partition are read at a time.
const dueCount = 256

func (s *Store) unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	k, err := s.current(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	if err := s.countAll(ctx, k); err != nil {
		return 0, 0, err
	}
	due := make(rueidis.Commands, partitions)
	for i := range due {
		due[i] = s.due(k, byte(i), 0, dueCount)
	}
	t := &tally{}
	for i, result := range s.client.DoMulti(ctx, due...) {
		if err := s.count(ctx, k, byte(i), result, t); err != nil {
			return 0, 0, err
		}
	}
	return t.n, t.oldest, nil
}

// countAll adds the open commands among the new records of all partitions to their sets.
func (s *Store) countAll(ctx context.Context, k keys) error {
	fresh := make(rueidis.Commands, partitions)
	for i := range fresh {
		fresh[i] = freshScript.command(s.client, freshKeys(k, byte(i)), freshArgs)
	}
	for i, result := range s.client.DoMulti(ctx, fresh...) {
		if err := s.countNew(ctx, k, byte(i), result); err != nil {
			return err
		}
	}
	return nil
}

// countNew adds the open commands among the new records of a partition to its set. The result
// is that of the command for the first entries of its index.
func (s *Store) countNew(ctx context.Context, k keys, partition byte, result rueidis.RedisResult) error {
	keys := freshKeys(k, partition)
	for {
		reply, err := freshScript.reply(ctx, s.client, result, keys, freshArgs)
		if err != nil {
			return err
		}
		entries, err := reply.AsXRange()
		if err != nil || len(entries) == 0 {
			return err
		}
		if err := s.countEntries(ctx, k, partition, entries); err != nil || len(entries) < dueCount {
			return err
		}
		result = s.client.Do(ctx, freshScript.command(s.client, keys, freshArgs))
	}
}

var freshArgs = []string{strconv.Itoa(dueCount)}

func freshKeys(k keys, partition byte) []string {
	return []string{k.index(partition), k.counted(partition)}
}

// countEntries adds the open commands among those of an index's entries to the set.
func (s *Store) countEntries(ctx context.Context, k keys, partition byte, entries []rueidis.XRangeEntry) error {
	keys := []string{k.open(partition), k.counted(partition), k.index(partition)}
	args := []string{entries[len(entries)-1].ID}
	for _, e := range entries {
		name := e.FieldValues["n"]
		keys, args = append(keys, k.own(partition)+name), append(args, name)
	}
	_, err := countScript.run(ctx, s.client, keys, args)
	return err
}

// count adds the unresolved records of a partition to a tally. The result is that of the
// command for the first names.
func (s *Store) count(ctx context.Context, k keys, partition byte, result rueidis.RedisResult, t *tally) error {
	for passed := 0; ; {
		names, err := s.names(ctx, k, result, partition, passed, dueCount)
		if err != nil || len(names) == 0 {
			return err
		}
		removed, err := s.examine(ctx, k, partition, names, t)
		if err != nil || len(names) < dueCount {
			return err
		}
		passed += len(names) - removed
		result = s.client.Do(ctx, s.due(k, partition, passed, dueCount))
	}
}

// A tally counts unresolved records.
type tally struct {
	n      int
	oldest time.Duration
}

// due returns the command for the names of a partition's records that may be unresolved.
func (s *Store) due(k keys, partition byte, passed, count int) rueidis.Completed {
	return dueScript.command(s.client, dueKeys(k, partition), dueArgs(passed, count))
}

func dueKeys(k keys, partition byte) []string {
	return []string{k.open(partition), k.index(partition)}
}

func dueArgs(passed, count int) []string { return []string{strconv.Itoa(passed), strconv.Itoa(count)} }

// names returns the names that a command for them has returned.
func (s *Store) names(ctx context.Context, k keys, result rueidis.RedisResult, partition byte, passed, count int) ([]string, error) {
	reply, err := dueScript.reply(ctx, s.client, result, dueKeys(k, partition), dueArgs(passed, count))
	if err != nil {
		return nil, err
	}
	return reply.AsStrSlice()
}

// examine adds the records of the names that are unresolved to a tally, and returns how many
// names have left the set.
func (s *Store) examine(ctx context.Context, k keys, partition byte, names []string, t *tally) (removed int, err error) {
	keys := make([]string, 0, 2+len(names))
	keys = append(keys, k.open(partition), k.index(partition))
	for _, name := range names {
		keys = append(keys, k.own(partition)+name)
	}
	reply, err := unresolvedScript.run(ctx, s.client, keys, names)
	if err != nil {
		return 0, err
	}
	since, err := reply.AsIntSlice()
	for _, micros := range since {
		switch {
		case micros >= 0:
			t.n, t.oldest = t.n+1, max(t.oldest, time.Duration(micros)*time.Microsecond)
		case micros == -1:
			removed++
		}
	}
	return removed, err
}

// sweepOpen rids the set of open commands of some names whose records have expired, in case
// nobody counts them. It begins anywhere, because those that are unresolved stay where they
// are.
func (s *Store) sweepOpen(ctx context.Context, k keys, partition byte) error {
	size, err := s.command(ctx, "ZCARD", k.open(partition)).AsInt64()
	if err != nil || size == 0 {
		return err
	}
	passed := max(0, int(rand.Int64N(size))-sweepCount/2)
	names, err := s.names(ctx, k, s.client.Do(ctx, s.due(k, partition, passed, sweepCount)), partition, passed, sweepCount)
	if err == nil && len(names) > 0 {
		_, err = s.examine(ctx, k, partition, names, new(tally))
	}
	return err
}
