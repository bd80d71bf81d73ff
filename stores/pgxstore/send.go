package pgxstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// send sends the statements in one round trip, with one before and one after them if
// those are not empty. Without an open transaction they are one implicit transaction.
// e notifies the waiters of the commands that end.
func send(ctx context.Context, on session, e *listener, before string, list []*statement, after string) (err error) {
	var b pgx.Batch
	if before != "" {
		b.Queue(before)
	}
	parts := mergeBulk(list)
	if ended := channels(list); ended != "" {
		parts = append(parts, e.notify(ended))
	}
	for _, p := range parts {
		p.queue(&b)
	}
	if after != "" {
		b.Queue(after)
	}
	results := on.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	if before != "" {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := p.read(results); err != nil {
			return err
		}
	}
	return nil
}

// A part of a pipeline is one statement to the server.
type part interface {
	queue(b *pgx.Batch)
	read(results pgx.BatchResults) error
}

// channels returns the channel names of the commands that the statements may end.
func channels(list []*statement) string {
	var all strings.Builder
	for _, s := range list {
		if s.endsCommand() {
			all.WriteString(channel(s.key))
		}
	}
	return all.String()
}
