package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/onlyonce-go/onlyonce/stores/internal/value"
)

// open reports whether the command runs, or has an unknown outcome.
func (h *head) open() bool { return h.state == value.Processing || h.state == value.Unknown }

// partitions are those of the index of open commands. One takes at most 1,000 writes a second,
// and a command makes two.
const partitions = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// partition returns the partition of the index in which the record is while it is open. It does
// not depend on how it is open, so that a renewal and an unknown outcome leave the index as it is.
func (p place) partition() string { return p.name[:1] }

// unresolved returns for how long a record has been unresolved at the time now, less than 0 if
// it is not.
func (h *head) unresolved(now int64) int64 {
	if end := h.expiry(); !h.open() || end != 0 && now >= end {
		return -1
	}
	if h.state == value.Processing {
		return now - value.Later(h.at, h.left)
	}
	return max(0, now-h.at)
}

// A tally counts unresolved records.
type tally struct {
	mu     sync.Mutex
	n      int
	oldest time.Duration
}

func (t *tally) add(since int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	t.oldest = max(t.oldest, time.Duration(since)*time.Microsecond)
}

// Unresolved counts the records whose outcome is unknown: those in the unknown state and those
// whose lease has lapsed. It also returns for how long the oldest of them has been unresolved.
// It queries the 64 partitions of the index that Migrate creates, and reads each record that is
// in it: those whose commands run, and the unresolved ones. The index may lack a record that
// was claimed within the last second or so, but hardly one whose lease has lapsed since.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	t := &tally{}
	if err := s.unresolved(ctx, t); err != nil {
		return 0, 0, wrap("count unresolved records", err)
	}
	return t.n, t.oldest, nil
}

func (s *Store) unresolved(ctx context.Context, t *tally) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	places := make(chan struct{}, readers)
	for n := range partitions {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			if err := s.countIn(ctx, partitions[n:n+1], t); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// countIn counts the unresolved records of a partition.
func (s *Store) countIn(ctx context.Context, partition string, t *tally) error {
	in := &dynamodb.QueryInput{
		TableName: &s.table, IndexName: aws.String(openIndex), KeyConditionExpression: aws.String("#open = :partition"),
		ExpressionAttributeNames: map[string]string{"#open": attrOpen}, ExpressionAttributeValues: item{":partition": text(partition)},
	}
	for {
		var r *dynamodb.QueryOutput
		err := s.repeat(ctx, func(ctx context.Context) error {
			return s.request(ctx, func(ctx context.Context) (err error) { r, err = s.client.Query(ctx, in); return err })
		})
		var failed smithy.APIError
		if errors.As(err, &failed) && failed.ErrorCode() == "ValidationException" {
			return fmt.Errorf("the table %s has no index %q that can be read: run onlyonce migrate, or call dynamostore.Migrate, and wait until the index is active: %w", s.table, openIndex, err)
		} else if err != nil {
			return err
		}
		for _, i := range r.Items {
			if err := s.count(ctx, textOf(i, attrKey), t); err != nil {
				return err
			}
		}
		if len(r.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = r.LastEvaluatedKey
	}
}

// count counts a record if it is unresolved.
func (s *Store) count(ctx context.Context, key string, t *tally) error {
	return s.repeat(ctx, func(ctx context.Context) error {
		i, err := s.get(ctx, key)
		if err != nil || i == nil {
			return err
		}
		at, err := s.clock.read()
		if err != nil {
			return err
		}
		if h, ok := parseHead(bytesOf(i, attrHead)); !ok {
			t.add(0) // an undecodable head has no known age
		} else if since := h.unresolved(at.judging); since >= 0 {
			t.add(since)
		}
		return nil
	})
}
