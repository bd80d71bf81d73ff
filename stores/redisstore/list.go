package redisstore

import (
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// List returns the records that match a filter, newest first. It reads the indexes of all
// partitions side by side. A filter with a tenant, an operation and a key
// reads one record; any other reads every record that is newer than the last
// one that it returns.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return record.Sequence(func(yield func(onlyonce.Record) bool) error {
		k, err := s.current(ctx, 0)
		if err == nil {
			l := lister{store: s, keys: k, filter: f}
			err = l.list(ctx, yield)
		}
		return wrap("list", s.explain(ctx, 0, err))
	})
}

type lister struct {
	store   *Store
	keys    keys
	filter  onlyonce.Filter
	after   record.Position
	cursors [partitions]cursor

	headless map[[32]byte]bool // the records without a head that were listed
}

// A cursor reads the entries of one partition's index, newest first.
type cursor struct {
	entries []indexed
	before  string // where the next entries begin
	ended   bool
}

// An indexed record is an entry of an index.
type indexed struct {
	record.Position
	place
}

func (l *lister) list(ctx context.Context, yield func(onlyonce.Record) bool) error {
	f := &l.filter
	if id, ok := record.Only(f); ok {
		v, err := l.store.find(ctx, id)
		switch {
		case errors.Is(err, onlyonce.ErrNotFound):
			return nil
		case err == nil && !v.Expired && record.Matches(f, &v.Record):
			yield(v.Record)
		}
		return err
	}
	l.after = record.After(f)
	begin := "+"
	if !f.FromNewest() {
		begin = strconv.FormatInt(max(l.after.CreatedAt, 0), 10)
	}
	for i := range l.cursors {
		l.cursors[i].before = begin
	}
	listing := record.Listing[indexed]{
		Filter: f,
		Few:    func(found []indexed) (int, error) { return l.few(ctx, found) },
		Read:   func(found []indexed) ([]onlyonce.Record, error) { return l.read(ctx, found) },
		Yield:  yield,
	}
	for {
		found, err := l.next(ctx)
		if err != nil || len(found) == 0 {
			return err
		}
		if more, err := listing.Show(found); !more {
			return err
		}
	}
}

// few returns how many of the next records are read at once.
func (l *lister) few(ctx context.Context, found []indexed) (int, error) {
	client := l.store.client
	commands := make(rueidis.Commands, len(found))
	for i, e := range found {
		commands[i] = client.B().Strlen().Key(e.record).Build()
	}
	sizes := make([]int64, len(found))
	for i, result := range client.DoMulti(ctx, commands...) {
		size, err := result.AsInt64()
		if err != nil {
			return 0, err
		}
		sizes[i] = size
	}
	return record.HowMany(len(found), func(i int) int64 { return sizes[i] }), nil
}

// next returns the next entries of all partitions, newest first.
func (l *lister) next(ctx context.Context) (found []indexed, err error) {
	for len(found) < record.Few {
		var newest *cursor
		for i := range l.cursors {
			c := &l.cursors[i]
			if len(c.entries) == 0 && !c.ended {
				if err := l.fill(ctx); err != nil {
					return nil, err
				}
			}
			if len(c.entries) > 0 && (newest == nil || c.entries[0].Compare(&newest.entries[0].Position) > 0) {
				newest = c
			}
		}
		if newest == nil {
			break
		}
		found = append(found, newest.entries[0])
		newest.entries = newest.entries[1:]
	}
	return found, nil
}

// fill reads further entries for every cursor that has none left, so that each has some
// or has ended.
func (l *lister) fill(ctx context.Context) error {
	client := l.store.client
	const count = 4
	for {
		var which []int
		var commands rueidis.Commands
		for i := range l.cursors {
			if c := &l.cursors[i]; len(c.entries) == 0 && !c.ended {
				which = append(which, i)
				keys, args := l.page(i, count)
				commands = append(commands, pageScript.command(client, keys, args))
			}
		}
		if len(which) == 0 {
			return nil
		}
		for n, result := range client.DoMulti(ctx, commands...) {
			keys, args := l.page(which[n], count)
			reply, err := pageScript.reply(ctx, client, result, keys, args)
			if err != nil {
				return err
			}
			entries, err := reply.AsXRange()
			if err != nil {
				return err
			}
			c := &l.cursors[which[n]]
			c.ended = len(entries) < count
			for _, e := range entries {
				c.before = "(" + e.ID
				if at, ok := l.entry(byte(which[n]), &e); ok && at.Compare(&l.after) < 0 {
					c.entries = append(c.entries, at)
				}
			}
		}
	}
}

// page returns the arguments of the script that returns the next entries of a partition.
func (l *lister) page(partition, count int) (keys, args []string) {
	return []string{l.keys.index(byte(partition))}, []string{l.cursors[partition].before, strconv.Itoa(count)}
}

// entry parses an entry of an index. It is not ok if the store did not write it.
func (l *lister) entry(partition byte, e *rueidis.XRangeEntry) (at indexed, ok bool) {
	name := e.FieldValues["n"]
	hash, err := base64.RawURLEncoding.DecodeString(name)
	created, numErr := createdAt(e.ID)
	if err != nil || numErr != nil || len(hash) != len(at.Hash) {
		return at, false
	}
	return indexed{
		Position: record.Position{CreatedAt: created, Hash: [32]byte(hash)},
		place:    l.keys.place(partition, name),
	}, true
}

// read returns the records of entries, without those that no longer exist.
func (l *lister) read(ctx context.Context, found []indexed) ([]onlyonce.Record, error) {
	client := l.store.client
	commands := make(rueidis.Commands, len(found))
	for i, e := range found {
		commands[i] = lookScript.command(client, []string{e.record, e.index}, nil)
	}
	records := make([]onlyonce.Record, 0, len(found))
	for i, result := range client.DoMulti(ctx, commands...) {
		reply, err := lookScript.reply(ctx, client, result, []string{found[i].record, found[i].index}, nil)
		if err != nil {
			return nil, err
		}
		v, err := read(&reply)
		if err != nil {
			return nil, err
		}
		if v != nil && !v.Expired && l.isEntryOf(&found[i], v) {
			records = append(records, v.Record)
		}
	}
	return records, nil
}

// isEntryOf reports whether a record is listed at an entry of the index. An ID has several
// entries if its command started over, and its record has the position of one of them. A record
// without a head is listed at the newest.
func (l *lister) isEntryOf(e *indexed, v *stored) bool {
	if !v.isHeadless() {
		return v.At == e.CreatedAt
	}
	if l.headless[e.Hash] {
		return false
	}
	if l.headless == nil {
		l.headless = make(map[[32]byte]bool)
	}
	l.headless[e.Hash] = true
	v.At, v.CreatedAt = e.CreatedAt, record.Instant(e.CreatedAt)
	return true
}
