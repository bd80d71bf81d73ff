package dynamostore

import (
	"context"
	"iter"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// List returns the records that match a filter, newest first. The table has them in the
// order of hashes, so List scans the whole table, once for every 16,384 records that it
// returns or passes over, and DynamoDB charges for every byte of it. A filter with a tenant,
// an operation and a key reads one record.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return record.Sequence(func(yield func(onlyonce.Record) bool) error { return wrap("list", s.list(ctx, &f, yield)) })
}

// readers is how many records are read at a time.
const readers = 16

func (s *Store) list(ctx context.Context, f *onlyonce.Filter, yield func(onlyonce.Record) bool) error {
	if id, ok := record.Only(f); ok {
		var v *stored
		err := s.repeat(ctx, func(ctx context.Context) (err error) { v, err = s.look(ctx, id, placeOf(id)); return err })
		if err == nil && v != nil && !v.Expired && record.Matches(f, &v.Record) {
			yield(v.Record)
		}
		return err
	}
	scan := record.Scan{
		Filter: f,
		All:    func(found *record.Newest) error { return s.scan(ctx, found) },
		Read:   func(found []record.Listed) ([]onlyonce.Record, error) { return s.records(ctx, found) },
		Yield:  yield,
	}
	return scan.Run()
}

// scan adds all records of the table to found.
func (s *Store) scan(ctx context.Context, found *record.Newest) error {
	// A page may be small, because items that a filter leaves out count as well.
	in := &dynamodb.ScanInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true),
		ProjectionExpression: aws.String(attrKey + ", " + attrHead), FilterExpression: aws.String("attribute_exists(" + attrHead + ")"),
	}
	for {
		var r *dynamodb.ScanOutput
		err := s.repeat(ctx, func(ctx context.Context) error {
			return s.request(ctx, func(ctx context.Context) (err error) { r, err = s.client.Scan(ctx, in); return err })
		})
		if err != nil {
			return err
		}
		for _, i := range r.Items {
			p, ok := parsePlace(textOf(i, attrKey))
			if !ok {
				continue
			}
			h, _ := parseHead(bytesOf(i, attrHead)) // one that can't be read has no date
			if h.state != value.Released {
				found.Add(record.Listed{Position: record.Position{CreatedAt: h.created, Hash: p.hash}, Size: h.size()})
			}
		}
		if len(r.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = r.LastEvaluatedKey
	}
}

// records returns the records that were listed, without those that are not there any more.
func (s *Store) records(ctx context.Context, found []record.Listed) ([]onlyonce.Record, error) {
	all, errs := make([]*stored, len(found)), make([]error, len(found))
	var running sync.WaitGroup
	places := make(chan struct{}, readers)
	for n := range found {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			p := placeAt(found[n].Hash)
			errs[n] = s.repeat(ctx, func(ctx context.Context) error {
				i, err := s.get(ctx, p.key())
				if err == nil && i != nil {
					all[n], err = s.decode(ctx, p, i)
				}
				return err
			})
		})
	}
	running.Wait()
	records := make([]onlyonce.Record, 0, len(found))
	for n, v := range all {
		if errs[n] != nil {
			return nil, errs[n]
		}
		if v != nil && !v.Expired && v.At == found[n].CreatedAt {
			records = append(records, v.Record)
		}
	}
	return records, nil
}
