package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// One of sweepOneIn new commands rids its partition's index of entries whose records
// Redis has deleted. It looks at sweepCount entries: at twice as many as are added.
const (
	sweepOneIn = 32
	sweepCount = 64
)

// sweepSometimes sweeps the index and the set of open commands of a partition to which a
// command was added at a time, without making its caller wait.
func (s *Store) sweepSometimes(ctx context.Context, partition byte, now int64) {
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
		k := s.known.Load().keys
		if now >= s.unswept[partition].Load() {
			_ = s.sweep(ctx, k, partition, now)
		}
		_ = s.sweepOpen(ctx, k, partition)
	})
}

// sweep looks at the next entries of an index. No entry is older than the first one, and Redis
// keeps each record for FenceKeep at least, so there is nothing to find while that one is younger.
// Its commands are arbitrary ones because these are never sent to replicas, which may have an
// entry and not yet its record.
func (s *Store) sweep(ctx context.Context, k keys, partition byte, now int64) error {
	index, swept := k.index(partition), k.swept(partition)
	from, err := s.command(ctx, "GET", swept).ToString()
	atStart := rueidis.IsRedisNil(err)
	switch {
	case atStart:
		from = "-"
	case err != nil:
		return err
	default:
		from = "(" + from
	}
	entries, err := s.command(ctx, "XRANGE", index, from, "+", "COUNT", strconv.Itoa(sweepCount)).AsXRangeSlices()
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		oldest, err := createdAt(entries[0].ID)
		if err != nil {
			return err
		}
		if until := oldest + record.FenceKeep.Microseconds(); now < until {
			if atStart {
				s.unswept[partition].Store(until)
				return nil
			}
			return s.command(ctx, "DEL", swept).Error()
		}
	}
	gone, err := s.findExpired(ctx, k, partition, entries)
	if err != nil {
		return err
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

// createdAt returns when the command of an entry was created.
func createdAt(entry string) (int64, error) {
	micros, _, _ := strings.Cut(entry, "-")
	return strconv.ParseInt(micros, 10, 64)
}

// findExpired returns the entries whose records Redis has deleted: mostly all or none, because entries
// are in the order of their creation. One question about all of them costs a fraction of one
// about each.
func (s *Store) findExpired(ctx context.Context, k keys, partition byte, entries []rueidis.XRangeSlice) (ids []string, err error) {
	if len(entries) == 0 {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = k.own(partition) + e.FieldValues[0].Value
	}
	index := k.index(partition)
	there, err := s.exist(ctx, index, names)
	if err != nil || there == int64(len(entries)) {
		return nil, err
	}
	if there == 0 {
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		return ids, nil
	}
	for i, name := range names {
		there, err := s.exist(ctx, index, []string{name})
		if err != nil {
			return nil, err
		}
		if there == 0 {
			ids = append(ids, entries[i].ID)
		}
	}
	return ids, nil
}

// exist returns how many of the records exist.
func (s *Store) exist(ctx context.Context, index string, records []string) (int64, error) {
	reply, err := existScript.run(ctx, s.client, append([]string{index}, records...), nil)
	if err != nil {
		return 0, err
	}
	return reply.AsInt64()
}

// command runs a command about one key.
func (s *Store) command(ctx context.Context, name, key string, args ...string) rueidis.RedisResult {
	return s.client.Do(ctx, s.client.B().Arbitrary(name).Keys(key).Args(args...).Build())
}
