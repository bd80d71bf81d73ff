package natsstore

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// List returns the records that match a filter, newest first. A stream has them in the
// order of their last changes, so List reads the headers of all of them, once for every
// 16,384 records that it returns or passes over. A record that changes at the moment in
// which the headers end may be missing. A filter with a tenant, an operation and a key
// reads one record.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return record.Sequence(func(yield func(onlyonce.Record) bool) error { return wrap("list", s.list(ctx, &f, yield)) })
}

const (
	// quiet is for how long no message comes at the end of a stream.
	quiet = 250 * time.Millisecond

	// A new consumer may lose the request for its messages, because another server of the
	// cluster does not know it yet. That is noticed when two heartbeats are missing.
	heartbeat = time.Second
)

func (s *Store) list(ctx context.Context, f *onlyonce.Filter, yield func(onlyonce.Record) bool) error {
	if id, ok := record.Only(f); ok {
		return s.repeat(ctx, func(ctx context.Context) error {
			v, err := s.find(ctx, id, s.stream.subjects.of(id))
			if err == nil && v != nil && !v.Expired && record.Matches(f, &v.Record) {
				yield(v.Record)
			}
			return err
		})
	}
	scan := record.Scan{
		Filter: f,
		All: func(found *record.Newest) error {
			return s.follow(ctx, 0, func(p place, h nats.Header, _ uint64, at int64) { found.Add(listed(p, h, at)) })
		},
		Read:  func(found []record.Listed) ([]onlyonce.Record, error) { return s.read(ctx, found) },
		Yield: yield,
	}
	return scan.Run()
}

// follow calls fn with the header, the sequence and the time of each record's message, in
// the order of their sequences, from a sequence on; 0: from the first. It ends when no
// message is left.
func (s *Store) follow(ctx context.Context, from uint64, fn func(p place, h nats.Header, seq uint64, at int64)) error {
	// The consumer may read from a replica that lags behind. It has everything that was
	// stored before once it has this message, or a later one of its subject.
	var last uint64
	var messages jetstream.MessagesContext
	err := s.repeat(ctx, func(ctx context.Context) (err error) {
		if last, err = s.stream.tick(ctx, make(nats.Header)); err != nil {
			return err
		}
		messages, err = s.stream.headers(ctx, from)
		return err
	})
	if err != nil {
		return err
	}
	defer messages.Stop()
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(s.timeout, cancel)
	defer silence.Stop()
	for passed := false; ; {
		m, err := messages.Next(jetstream.NextContext(limited))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil && passed:
			return s.verified(ctx)
		case limited.Err() != nil:
			return fmt.Errorf("the stream has sent no message for %v", s.timeout)
		case err != nil:
			return err
		}
		about, err := m.Metadata()
		if err != nil {
			return err
		}
		if p, ok := s.stream.subjects.parse(m.Subject()); ok {
			fn(p, m.Headers(), about.Sequence.Stream, about.Timestamp.UnixMicro())
		}
		// A record that has changed during the scan is in a later message, so the scan goes on
		// to the end.
		passed = passed || about.Sequence.Stream >= last
		if passed && about.NumPending == 0 {
			return s.verified(ctx)
		}
		silence.Reset(s.timeout)
		if passed {
			silence.Reset(quiet)
		}
	}
}

// verified returns an error if the connection has moved to another stream.
func (s *Store) verified(ctx context.Context) error {
	return s.repeat(ctx, func(ctx context.Context) error { _, err := s.stream.info(ctx); return err })
}

// headers returns the headers of the stream's messages, in their order, from a sequence on;
// 0: from the first.
func (s *stream) headers(ctx context.Context, from uint64) (messages jetstream.MessagesContext, err error) {
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: true, InactiveThreshold: time.Minute}
	if from > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	}
	err = s.ask(ctx, func(ctx context.Context) error {
		consumer, err := s.js.OrderedConsumer(ctx, s.name, cfg)
		if err == nil {
			messages, err = consumer.Messages(jetstream.PullHeartbeat(heartbeat))
		}
		return err
	})
	return messages, err
}

// listed returns where a record stands whose message has a header and a time.
func listed(p place, h nats.Header, at int64) record.Listed {
	size, _ := strconv.ParseInt(h.Get(nats.MsgSize), 10, 64)
	return record.Listed{Position: record.Position{CreatedAt: created(h, at), Hash: p.hash}, Size: size}
}

// read returns the records that were listed, without those that are not there any more.
func (s *Store) read(ctx context.Context, found []record.Listed) ([]onlyonce.Record, error) {
	all := make([]*stored, len(found))
	errs := make([]error, len(found))
	var clock reading
	if err := s.repeat(ctx, func(ctx context.Context) (err error) { clock, err = s.stream.clock(ctx); return err }); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	for i := range found {
		running.Go(func() {
			errs[i] = s.stream.inTurn(ctx, func() error {
				return s.repeat(ctx, func(ctx context.Context) error {
					m, err := s.stream.get(ctx, s.stream.subjects.place(found[i].Hash).record, 0)
					if err == nil && m.seq != 0 {
						all[i] = decode(m, clock.at(&m, s.skew))
					}
					return err
				})
			})
		})
	}
	running.Wait()
	records := make([]onlyonce.Record, 0, len(found))
	for i, v := range all {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if v != nil && !v.Expired && v.At == found[i].CreatedAt {
			records = append(records, v.Record)
		}
	}
	return records, nil
}
