package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// List returns the records that match a filter, newest first. The keys are in the order of
// hashes, so List reads the heads of all records, once for every 16,384 that it returns or
// passes over. A filter with a tenant, an operation and a key reads one record.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return record.Sequence(func(yield func(onlyonce.Record) bool) error { return wrap("list", s.list(ctx, &f, yield)) })
}

const (
	heads = 1 << 7 // heads that are read at a time, each of at most 64 KiB

	// most is how many records are read at a time: a transaction has at most 128 parts.
	most = 48
)

func (s *Store) list(ctx context.Context, f *onlyonce.Filter, yield func(onlyonce.Record) bool) error {
	if id, ok := record.Only(f); ok {
		var v *stored
		err := s.repeat(ctx, func(ctx context.Context) (err error) { v, err = s.find(ctx, id, s.keys.of(id)); return err })
		if err == nil && v != nil && !v.Expired && record.Matches(f, &v.Record) {
			yield(v.Record)
		}
		return err
	}
	scan := record.Scan{
		Filter: f,
		All:    func(found *record.Newest) error { return s.scan(ctx, found) },
		Read:   func(found []record.Listed) ([]onlyonce.Record, error) { return s.records(ctx, found) },
		Most:   most,
		Yield:  yield,
	}
	return scan.Run()
}

// scan adds all records to found.
func (s *Store) scan(ctx context.Context, found *record.Newest) error {
	_, err := s.heads(ctx, found.Reset, func(p place, h *head) {
		if h.state != value.Released {
			found.Add(record.Listed{Position: record.Position{CreatedAt: h.created, Hash: p.hash}, Size: h.size()})
		}
	})
	return err
}

// heads calls each with the heads of all records as they were at one revision, which it
// returns. It calls begin before the first, and again if it has to start over. A head that
// can't be read has only the place in the list that decode gives its record.
func (s *Store) heads(ctx context.Context, begin func(), each func(p place, h *head)) (revision int64, err error) {
	begin()
	for from := s.keys.records(); ; {
		var r *clientv3.TxnResponse
		err := s.repeat(ctx, func(ctx context.Context) (err error) {
			r, err = request(ctx, s.cluster, func(ctx context.Context) (*clientv3.TxnResponse, error) {
				return s.client.Txn(ctx).Then(
					clientv3.OpGet(from, clientv3.WithRange(s.keys.recordsEnd()), clientv3.WithLimit(heads), clientv3.WithRev(revision)),
					clientv3.OpGet(s.keys.clock()), // it shows which cluster has responded
				).Commit()
			})
			return err
		})
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			from, revision = s.keys.records(), 0
			begin()
			continue
		case err != nil:
			return 0, err
		}
		revision = cmp.Or(revision, r.Header.Revision)
		found := r.Responses[0].GetResponseRange()
		for _, kv := range found.Kvs {
			if p, ok := s.keys.parse(string(kv.Key)); ok {
				h, readable := parseHead(kv.Value)
				if !readable {
					h.created = kv.CreateRevision
				}
				each(p, &h)
			}
		}
		if !found.More {
			return revision, nil
		}
		from = string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
	}
}

// records returns the records that were listed, without those that are not there any more.
func (s *Store) records(ctx context.Context, found []record.Listed) (records []onlyonce.Record, err error) {
	ops := make([]clientv3.Op, 0, 2*len(found)+1)
	for i := range found {
		p := s.keys.place(found[i].Hash)
		ops = append(ops, clientv3.OpGet(p.head), clientv3.OpGet(p.rest))
	}
	ops = append(ops, clientv3.OpGet(s.keys.clock()))
	err = s.repeat(ctx, func(ctx context.Context) error {
		r, err := request(ctx, s.cluster, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return s.client.Txn(ctx).Then(ops...).Commit()
		})
		if err != nil {
			return err
		}
		at, err := s.clock.read(read(r, 2*len(found)))
		if err != nil {
			return err
		}
		records = records[:0]
		var end int64
		for i := range found {
			v := decode(read(r, 2*i), read(r, 2*i+1), at)
			if v == nil {
				continue
			}
			end = max(end, v.ended(at.judging))
			if !v.Expired && v.At == found[i].CreatedAt {
				records = append(records, v.Record)
			}
		}
		return s.publishEnd(ctx, end, at)
	})
	return records, err
}
