package messages

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"hash/fnv"
	"slices"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// Messages that wait for another of their key would be passed over by every lease. If the oldest
// waiting messages are mostly such messages, they are blocked: they get a state of their own, in
// which a lease does not meet them. The index lists them by the hash of their key, and then by
// age. The oldest one of each key has another state than the rest, so that a lease finds the keys.
// Once no message of a key is held or parked, a few of its blocked messages at a time wait again.
// A lease looks at some thousands of such keys only, and the next one at those that follow in the
// index, so that it takes no longer, the more keys have blocked messages.
//
// Until then, a lease looks only at the oldest waiting messages, unless none of these can be blocked.
//
// A message of a key never overtakes one that is blocked, because leasable drops those that are
// younger. Messages are blocked, and wait again, only in transactions that have the queue to
// themselves. Nothing else may change a blocked message, or those behind a first one that is gone
// would stay blocked. Messages of a lease that has lapsed are therefore not blocked: the relay that
// had it may still settle them.

// minBlocked is how many of the 1,000 oldest waiting messages must wait for others of their keys.
const minBlocked = 500

// A place is where a message is in the queue.
type place struct {
	seq int64
	key string
}

// A move gives a message a state and a time. It is an argument as JSON.
type move [3]any

func moveTo(seq int64, state string, due int64) move { return move{seq, state, due} }

func moveAll(s engine.Runner, moves []move) error {
	if len(moves) == 0 {
		return nil
	}
	text, _ := json.Marshal(moves) // numbers and texts have no error
	_, err := s.Exec("outbox move", (&engine.OutboxMoves{Moves: string(text)}).List())
	return err
}

// line returns the hash of a key.
func line(key string) int64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int64(h.Sum64() >> 1)
}

// clear blocks waiting messages if most of the oldest ones wait for others of their keys, and reports
// whether it has blocked any. It is a transaction of its own, so that it counts even if leasing fails.
func (q *Queue) clear(ctx context.Context) (blocked bool, err error) {
	var crowd int64
	err = q.on.OutboxRead(ctx).Query("outbox crowd", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		crowd = r.Int("count")
		return r.Err
	})
	if crowd < minBlocked || err != nil {
		return false, err
	}
	err = q.on.OutboxWrite(ctx, true, func(s engine.Runner) (err error) {
		blocked, err = block(s)
		return err
	})
	return blocked, err
}

// block blocks those of the 10,000 oldest waiting messages that wait for others of their keys. It
// blocks none that is older than a blocked one of its key, because that one would not be the
// oldest any more.
func block(s engine.Runner) (blocked bool, err error) {
	list, err := places(s, "outbox held back", nil)
	if err != nil {
		return false, err
	}
	first, err := firsts(s, list)
	if err != nil {
		return false, err
	}
	var moves []move
	for _, p := range list {
		oldest, ok := first[p.key]
		switch {
		case !ok:
			first[p.key] = p.seq
			moves = append(moves, moveTo(p.seq, "first", line(p.key)))
		case p.seq > oldest:
			moves = append(moves, moveTo(p.seq, "blocked", line(p.key)))
		}
	}
	return len(moves) > 0, moveAll(s, moves)
}

// unblock makes the oldest blocked messages of keys wait again of which no message is held or
// parked any more, at most limit. It looks at some keys, from one in the index on, and returns the
// one from which to look next.
func unblock(s engine.Runner, from engine.OutboxPlace, limit int) (next engine.OutboxPlace, err error) {
	err = s.Query("outbox looked at", from.List(), func(v []driver.Value) error {
		r := record.Reader{Values: v}
		next.Seq, next.Line = r.Int("seq"), r.Int("due_at")
		return r.Err
	})
	if err != nil {
		return next, err
	}
	list, err := places(s, "outbox unblocked", from.List())
	if err != nil {
		return next, err
	}
	var moves []move
	for _, p := range list {
		if limit <= 0 {
			break
		}
		limit--
		moves = append(moves, moveTo(p.seq, "waiting", 0))
		behind, err := seqs(s, "outbox line", (&engine.OutboxLine{Line: line(p.key), Key: p.key, Limit: int64(limit) + 1}).List())
		if err != nil {
			return next, err
		}
		for _, seq := range behind[:min(limit, len(behind))] {
			moves = append(moves, moveTo(seq, "waiting", 0))
		}
		if len(behind) > limit {
			moves = append(moves, moveTo(behind[limit], "first", line(p.key)))
		}
		limit -= min(limit, len(behind))
	}
	return next, moveAll(s, moves)
}

// leasable returns the messages that a statement finds, without those of which an older one of
// their key is blocked.
func leasable(s engine.Runner, statement string, args []driver.NamedValue) (list []outbox.Entry, err error) {
	blocked, size := false, 0
	err = s.Query(statement, args, func(v []driver.Value) error {
		last := record.Reader{Values: v[len(v)-1:]}
		blocked = last.Int("blocked") != 0
		e := entry(v[:len(v)-1])
		if size += len(e.Payload); size <= outbox.MaxLeaseBytes || len(list) == 0 {
			list = append(list, e)
		}
		return last.Err
	})
	if err != nil || !blocked {
		return list, err
	}
	keyed := make([]place, len(list))
	for i, e := range list {
		keyed[i] = place{e.Seq, e.Key}
	}
	first, err := firsts(s, keyed)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(e outbox.Entry) bool {
		oldest, ok := first[e.Key]
		return ok && oldest < e.Seq
	}), nil
}

// firsts returns the numbers of the oldest blocked messages of the keys of a list, by key.
func firsts(s engine.Runner, list []place) (map[string]int64, error) {
	seen := make(map[string]bool)
	var lines []int64
	for _, p := range list {
		if p.key != "" && !seen[p.key] {
			seen[p.key] = true
			lines = append(lines, line(p.key))
		}
	}
	first := make(map[string]int64)
	if len(lines) == 0 {
		return first, nil
	}
	found, err := places(s, "outbox firsts", (&engine.OutboxSeqs{Seqs: numbers(lines)}).List())
	for _, p := range found {
		if oldest, ok := first[p.key]; !ok || p.seq < oldest {
			first[p.key] = p.seq
		}
	}
	return first, err
}
