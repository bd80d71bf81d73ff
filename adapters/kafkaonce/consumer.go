package kafkaonce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/recovered"
)

// Run consumes until ctx ends, with a client of its own that has these options, of which
// kgo.ConsumerGroup is required. It returns an error only if the options are invalid. An
// error of Kafka is logged with slog.Default(), and the client tries again.
//
// When ctx ends, no other record is begun. Run returns when the handlers that are running have
// returned and their offsets are committed. When a partition is given to another member of the
// group, Run does the same for that partition. A handler that takes longer than the group's
// rebalance timeout, by default a minute, makes the member lose all its partitions: nothing is
// handled twice at the same time, but the other member waits.
//
// Run sets the options OnPartitionsRevoked, OnPartitionsLost, AutoCommitMarks and
// BlockRebalanceOnPoll itself. Unlike the client's default, records of transactions that were
// aborted are not handled; see kgo.FetchIsolationLevel.
func (c *Consumer) Run(ctx context.Context, opts ...kgo.Opt) error {
	s := &session{consumer: c, ctx: ctx, partitions: make(map[place]*partition)}
	defaults := []kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.AutoCommitCallback(logCommit)}
	own := []kgo.Opt{kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsRevoked(s.revoked), kgo.OnPartitionsLost(s.lost)}
	client, err := kgo.NewClient(slices.Concat(defaults, opts, own)...)
	if err != nil {
		return fmt.Errorf("kafkaonce: Run: %w", err)
	}
	s.client = client
	defer client.CloseAllowingRebalance() // which calls revoked
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for _, e := range fetches.Errors() {
			slog.WarnContext(ctx, "kafkaonce: records could not be fetched", "topic", e.Topic, "partition", e.Partition, "error", e.Err)
		}
		fetches.EachPartition(s.add)
		client.AllowRebalance()
	}
}

// logCommit logs an error of a commit. Its records are delivered again if no later commit succeeds. One
// that was canceled, because the member leaves the group, is followed by another.
func logCommit(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		slog.Warn("kafkaonce: offsets could not be committed", "error", err)
	}
}

// A place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

func (p place) only() map[string][]int32 { return map[string][]int32{p.topic: {p.partition}} }

// A session is one call of Run. The client calls revoked and lost only while add does not run.
type session struct {
	consumer   *Consumer
	ctx        context.Context
	client     *kgo.Client
	partitions map[place]*partition
}

// A partition handles the records of a partition, one after another. While records wait for it,
// no others are fetched.
type partition struct {
	*session
	at    place
	waits chan []*kgo.Record // has room for the records of one fetch
	stop  context.CancelFunc
	done  chan struct{}
}

// add passes the records that were fetched to their partition. It does not block: a partition
// for which records wait is paused.
func (s *session) add(fetched kgo.FetchTopicPartition) {
	if len(fetched.Records) == 0 {
		return
	}
	at := place{fetched.Topic, fetched.Partition}
	p := s.partitions[at]
	if p == nil {
		ctx, stop := context.WithCancel(s.ctx)
		p = &partition{session: s, at: at, waits: make(chan []*kgo.Record, 1), stop: stop, done: make(chan struct{})}
		s.partitions[at] = p
		go func() {
			defer close(p.done)
			p.run(ctx)
		}()
	}
	s.client.PauseFetchPartitions(at.only())
	p.waits <- fetched.Records
}

// revoked finishes the records of partitions that are given to another member, and commits.
func (s *session) revoked(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
	s.lost(ctx, client, revoked)
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		logCommit(client, nil, nil, err)
	}
}

// lost finishes the records of partitions that another member may have.
func (s *session) lost(_ context.Context, client *kgo.Client, lost map[string][]int32) {
	var stopped []*partition
	for topic, numbers := range lost {
		for _, number := range numbers {
			at := place{topic, number}
			if p := s.partitions[at]; p != nil {
				p.stop()
				stopped = append(stopped, p)
				delete(s.partitions, at)
			}
		}
	}
	for _, p := range stopped {
		<-p.done
		client.ResumeFetchPartitions(p.at.only())
	}
}

// run handles records until ctx ends.
func (p *partition) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case records := <-p.waits:
			p.client.ResumeFetchPartitions(p.at.only())
			for _, r := range records {
				if !p.handle(ctx, r) {
					return
				}
				p.client.MarkCommitRecords(r)
			}
		}
	}
}

// handle tries a record until it is handled, or until ctx has ended.
func (p *partition) handle(ctx context.Context, r *kgo.Record) bool {
	cfg := p.consumer.cfg
	for pause := cfg.Backoff; ctx.Err() == nil; pause = min(2*pause, cfg.MaxBackoff) {
		err := p.try(ctx, r)
		if err == nil {
			return true
		}
		_ = p.call(ctx, r, "Config.Failed", func() error {
			cfg.Failed(ctx, r, err)
			return nil
		})
		wait := pause
		var busy *onlyonce.InFlightError
		if errors.As(err, &busy) {
			wait = min(pause, max(busy.RetryAfter, cfg.Backoff))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return false
}

// try handles a record.
func (p *partition) try(ctx context.Context, r *kgo.Record) error {
	return p.call(ctx, r, "the handler", func() error {
		return p.consumer.handle(context.WithValue(ctx, recordKey{}, r), r)
	})
}

// call calls a function of the program's for a record in a goroutine of its own, so that neither a panic
// nor runtime.Goexit ends the partition's.
func (p *partition) call(ctx context.Context, r *kgo.Record, who string, fn func() error) error {
	err := recovered.Call(who, fn)
	recovered.Log(ctx, err, "kafkaonce", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset)
	return err
}
