package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// An item has at most 400 KB. Steps and results of a record beyond that are split
// into pieces, which are items of their own.
const (
	// pieceSize is how many bytes one has.
	pieceSize = 384 << 10

	// mostInline is how many bytes a record may have in its own item.
	mostInline = 384 << 10

	// atOnce is how many of them are written or read at a time.
	atOnce = 8

	// margin is how much longer than its record DynamoDB keeps a piece.
	margin = 24 * time.Hour
)

// each calls f for the pieces, a few at a time, and returns the first error.
func (p *pieces) each(f func(n int) error) error {
	var running sync.WaitGroup
	places := make(chan struct{}, atOnce)
	errs := make([]error, p.count)
	for n := range p.count {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			errs[n] = f(n)
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// store writes the rest of a record that DynamoDB may delete after a second, 0: never, in
// pieces. No record refers to them yet. Those of a record that may be renewed last longer,
// so that few renewals have to write them again.
func (s *Store) store(ctx context.Context, of place, h *head, rest []byte) (*pieces, error) {
	p := &pieces{id: rand.Text(), count: (len(rest) + pieceSize - 1) / pieceSize, size: len(rest), deleted: h.deletion()}
	if p.deleted > 0 {
		p.deleted += int64(margin / time.Second)
		if h.state == value.Processing {
			p.deleted += h.left / second * 8
		}
	}
	return p, p.each(func(n int) error {
		piece := rest[n*pieceSize : min((n+1)*pieceSize, len(rest))]
		put := &dynamodb.PutItemInput{
			TableName: &s.table,
			Item:      expiring(item{attrKey: text(p.key(of, n)), attrData: binaryOf(piece)}, p.deleted),
		}
		return s.repeat(ctx, func(ctx context.Context) error {
			return s.request(ctx, func(ctx context.Context) error { _, err := s.client.PutItem(ctx, put); return err })
		})
	})
}

// load reads the rest of a record. It is not ok if a piece is missing.
func (s *Store) load(ctx context.Context, of place, p *pieces) (rest []byte, ok bool, err error) {
	rest = make([]byte, p.size)
	err = p.each(func(n int) error {
		var data []byte
		err := s.repeat(ctx, func(ctx context.Context) error {
			i, err := s.get(ctx, p.key(of, n))
			data = bytesOf(i, attrData)
			return err
		})
		if err != nil {
			return err
		}
		if into := rest[n*pieceSize : min((n+1)*pieceSize, p.size)]; copy(into, data) != len(into) || len(data) != len(into) {
			return errMissing
		}
		return nil
	})
	if errors.Is(err, errMissing) {
		return nil, false, nil
	}
	return rest, err == nil, err
}

// discard deletes pieces to which no record refers. Pieces that it does not reach are deleted by
// DynamoDB, if the record does not stay for good.
func (s *Store) discard(ctx context.Context, of place, p *pieces) {
	if p == nil {
		return
	}
	_ = p.each(func(n int) error {
		return s.request(ctx, func(ctx context.Context) error {
			_, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &s.table, Key: keyOf(p.key(of, n))})
			return err
		})
	})
}

// get reads an item; nil: there is none.
func (s *Store) get(ctx context.Context, key string) (i item, err error) {
	err = s.request(ctx, func(ctx context.Context) error {
		r, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: keyOf(key), ConsistentRead: aws.Bool(true)})
		if err == nil {
			i = r.Item
		}
		return err
	})
	return i, err
}
